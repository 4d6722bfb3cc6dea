"""Mixed data: each response is graded by the task that its row's `datasource` names."""

from openrlhf_js.tasks.rewards import reward_by_datasource

reward_func = reward_by_datasource
