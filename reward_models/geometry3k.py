"""Geometry3k: the last boxed answer to a question about a figure."""

from openrlhf_js.tasks.rewards import reward_function

TASK = "geometry3k"
reward_func = reward_function(TASK)
