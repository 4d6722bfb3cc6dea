"""GSM8K: the number in the last box, or after the last `####` if there is no box."""

from answer_graders.rewards import reward_function

TASK = "gsm8k"
reward_func = reward_function(TASK)
