"""Bradley-Terry reward models: preference data, checkpoints, scores, evaluation and the server."""

from openrlhf_js import needs

needs("reward-model", "fastapi")

TOKEN_VARIABLE = "OPENRLHF_JS_REWARD_TOKEN"  # environment variable of servers and clients
