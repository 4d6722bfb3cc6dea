"""Mixed data: each response is graded by the task that its row's `datasource` names."""

from answer_graders.rewards import BY_DATASOURCE, reward_by_datasource

TASK = BY_DATASOURCE
reward_func = reward_by_datasource
