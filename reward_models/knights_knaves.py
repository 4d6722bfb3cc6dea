"""Knights and knaves: who is which, in the last box."""

from openrlhf_js.tasks.rewards import reward_function

TASK = "knights_knaves"
reward_func = reward_function(TASK)
