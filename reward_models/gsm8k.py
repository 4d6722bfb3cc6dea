"""GSM8K: the number after `####`, or the last boxed one."""

from openrlhf_js.tasks.rewards import reward_function

reward_func = reward_function("gsm8k")
