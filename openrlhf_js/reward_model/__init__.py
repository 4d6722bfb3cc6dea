"""Bradley-Terry reward models: preference data, checkpoints, scores, evaluation and the server."""

TOKEN_VARIABLE = "OPENRLHF_JS_REWARD_TOKEN"  # environment variable of servers and clients
