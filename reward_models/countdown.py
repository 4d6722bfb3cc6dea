"""Countdown: an expression over the given numbers that makes the target."""

from answer_graders.rewards import reward_function

TASK = "countdown"
reward_func = reward_function(TASK)
