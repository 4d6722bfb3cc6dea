"""Questions: the answer and nothing but the answer."""

from openrlhf_js.tasks.rewards import reward_function

TASK = "questions"
reward_func = reward_function(TASK)
