"""What gives rewards: a file, an agent, servers, or a reward model in the run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from openrlhf_js.plugin.prompts import Flat
from openrlhf_js.plugin.run.user_file import UserFile, load_file
from openrlhf_js.plugin.upstream import BadInput


def grader_of(
    agent: str | None, addresses: Sequence[str], device: str, limit_seconds: float
) -> UserFile | None:
    """The agent of the run, or the reward file that it has in place of addresses; None for none."""
    if agent:
        return load_file(agent, "AgentExecutor", device, limit_seconds)
    if addresses and addresses[0].endswith(".py"):
        return load_file(addresses[0], "reward_func", device, limit_seconds)
    return None


def reward_problems(flat: Flat, grader: UserFile | None) -> Iterator[str]:
    agent = flat["train.agent_func_path"]
    url = flat["reward.remote_url"]
    remote = bool(url) and grader is None
    if flat["js.reward_weights"] is not None and not remote:
        yield "--js.reward_weights is for reward models that --reward.remote_url names"
    if remote and flat["reward.normalize_enable"] and flat["algo.advantage.estimator"] != "gae":
        yield (
            "--reward.normalize_enable normalises a reward model in Ray, and --reward.remote_url "
            "names servers: leave it out here and give it to `openrlhf-js rm serve`"
        )
    if remote:
        from openrlhf_js.plugin.rewards import parse, refused

        try:
            sources = parse(url.split(","), flat["js.reward_weights"])
            for source in filter(refused, sources):
                yield f"--reward.remote_url {source.urls[0]}: no server there (connection refused)"
        except BadInput as error:
            yield from str(error).splitlines()
    elif grader:
        flag = "train.agent_func_path" if agent else "reward.remote_url"
        if grader.problem:
            yield f"--{flag} {agent or url.split(',')[0]}: {grader.problem}"
    elif not flat["reward.model_name_or_path"]:
        yield (
            "nothing gives rewards: give --reward.remote_url (a .py file or an address), "
            "--reward.model_name_or_path or --train.agent_func_path"
        )
    elif flat["algo.advantage.estimator"] == "remax":
        yield (
            "remax needs rewards with the responses, and a reward model in Ray gives them later: "
            "serve it (`openrlhf-js rm serve`) and give --reward.remote_url"
        )
