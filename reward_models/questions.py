"""Questions: the answer and nothing but the answer."""

from answer_graders.rewards import reward_function

TASK = "questions"
reward_func = reward_function(TASK)
