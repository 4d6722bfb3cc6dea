"""Maze: a path of steps from S to E."""

from answer_graders.rewards import reward_function

TASK = "maze"
reward_func = reward_function(TASK)
