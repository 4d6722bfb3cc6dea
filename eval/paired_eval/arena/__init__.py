"""Arena-Hard: answers to hard questions, compared with a baseline by a judge."""
