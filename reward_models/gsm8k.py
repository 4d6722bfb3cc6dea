"""GSM8K: the number in the last box, or without a box the one after the last `####`."""

from answer_graders.rewards import reward_function

TASK = "gsm8k"
reward_func = reward_function(TASK)
