"""Knights and knaves: who is which, in the last box."""

from answer_graders.rewards import reward_function

TASK = "knights_knaves"
reward_func = reward_function(TASK)
