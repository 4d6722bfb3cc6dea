"""Mixed data: each response is graded by the task that its row's `datasource` names."""

from openrlhf_js.tasks.rewards import BY_DATASOURCE, reward_by_datasource

TASK = BY_DATASOURCE
reward_func = reward_by_datasource
