"""Geometry3k: the last boxed answer to a question about a figure."""

from answer_graders.rewards import reward_function

TASK = "geometry3k"
reward_func = reward_function(TASK)
