"""Questions: the answer and nothing else."""

from answer_graders.rewards import reward_function

TASK = "questions"
reward_func = reward_function(TASK)
