"""Reasoning Gym: the library's score of the last `<answer>`, from 0 to 1."""

from answer_graders.rewards import reward_function

TASK = "reasoning_gym"
reward_func = reward_function(TASK)
