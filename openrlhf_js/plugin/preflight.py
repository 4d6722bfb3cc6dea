"""What can be known to fail is said before any model is loaded, all of it at once."""

from __future__ import annotations

import argparse
import ast
import glob
import math
import os
from collections.abc import Iterator
from typing import Any

from openrlhf_js.estimators import ESTIMATORS
from openrlhf_js.plugin.batch_sizes import COUNTS, batch_problems
from openrlhf_js.plugin.errors import BadInput
from openrlhf_js.plugin.flags import ESTIMATORS as OURS
from openrlhf_js.plugin.gradient_checks import gradient_problems
from openrlhf_js.plugin.prompt_files import Keys, check_datasets, looks_local
from openrlhf_js.plugin.reward_urls import parse

Flat = dict[str, Any]  # "rollout.batch_size" -> value

# Upstream's estimators that compare the responses to one prompt with each other.
COMPARES_RESPONSES = ("rloo", "reinforce_baseline", "group_norm", "dr_grpo")
MIXED = "reward_by_datasource"  # of openrlhf_js.tasks.rewards
WEIGHTS = ("*.safetensors", "*.bin")
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json")


def check(args: argparse.Namespace) -> None:
    """Makes sure that nothing in the arguments or the files they name is known to fail.

    Args:
        args: flat, with dotted attribute names, as the parser returns them.

    Raises:
        BadInput: every problem found, one per line.
    """
    flat: Flat = vars(args)
    problems = [
        f"--{name} must be at least 1, got {flat[name]}" for name in COUNTS if flat[name] < 1
    ]
    counts_make_sense = not problems
    problems += [*_estimator(flat), *_models(flat), *_rewards(flat)]
    found, prompts = _data(flat)
    problems += found
    if counts_make_sense:
        problems += [*batch_problems(flat, prompts), *gradient_problems(flat, prompts)]
    if problems:
        raise BadInput("\n".join(problems))


def _estimator(flat: Flat) -> Iterator[str]:
    name, shrinkage = flat["algo.advantage.estimator"], flat["js.shrinkage"]
    prompts, responses = flat["rollout.batch_size"], flat["rollout.n_samples_per_prompt"]
    if name in COMPARES_RESPONSES and responses < 2:
        yield _too_few(name, 2, "rollout.n_samples_per_prompt", responses)
    if name in OURS:
        needs = ESTIMATORS[name]
        if prompts < needs.least_prompts:
            yield _too_few(name, needs.least_prompts, "rollout.batch_size", prompts)
        if responses < needs.least_responses:
            yield _too_few(name, needs.least_responses, "rollout.n_samples_per_prompt", responses)
        if prompts * responses < needs.least_rewards:
            yield (
                f"{name} needs at least {needs.least_rewards} rewards in a batch, got {prompts} x "
                f"{responses}: raise --rollout.batch_size or --rollout.n_samples_per_prompt"
            )
    needs_shrinkage = name in OURS and ESTIMATORS[name].needs_shrinkage
    if needs_shrinkage and shrinkage is None:
        yield f"{name} needs --js.shrinkage, from 0 (rloo) to 1 (bloo)"
    if shrinkage is not None and not needs_shrinkage:
        yield f"--js.shrinkage is for js_fixed, not {name}: leave it out or choose js_fixed"
    if shrinkage is not None and not 0 <= shrinkage <= 1:
        yield f"--js.shrinkage must be from 0 to 1, got {shrinkage}"
    half_life = flat["js.half_life"]
    if half_life is not None and name != "js_plus":
        yield f"--js.half_life is for js_plus, not {name}: leave it out or choose js_plus"
    if half_life is not None and not 0 < half_life < math.inf:
        yield f"--js.half_life must be more than 0, and finite, got {half_life}"
    if flat["js.on_bad_reward"] == "mask" and (
        flat["algo.kl.use_loss"] or flat["actor.entropy_coef"]
    ):
        yield (
            "--js.on_bad_reward mask cannot keep a response out of --algo.kl.use_loss or "
            "--actor.entropy_coef: leave those out, or let the run stop"
        )
    if flat["js.on_bad_reward"] == "mask" and name not in OURS:
        yield (
            f"--js.on_bad_reward mask leaves responses out of a baseline, which upstream's {name} "
            f"cannot: choose one of {', '.join(OURS)} (js_fixed with --js.shrinkage 0 is rloo)"
        )


def _too_few(estimator: str, least: int, flag: str, came: int) -> str:
    return f"{estimator} needs --{flag} of at least {least}, got {came}"


def _models(flat: Flat) -> Iterator[str]:
    if not flat["actor.model_name_or_path"]:
        yield "--actor.model_name_or_path is missing: the model to train"
    for role in ("actor", "critic", "reward"):
        path = flat[f"{role}.model_name_or_path"]
        elsewhere = flat["reward.remote_url"] or flat["train.agent_func_path"]
        if role == "reward" and path and os.path.isdir(path) and not elsewhere:
            yield from _reward_model(flat, path)
            continue
        problem = path and _model_problem(path, needs_tokenizer=role == "actor")
        if problem:
            yield f"--{role}.model_name_or_path {path}: {problem}"


def _reward_model(flat: Flat, path: str) -> Iterator[str]:
    from openrlhf_js.plugin.reward_model_checks import reward_model_problems  # slow to import

    policy, prefix = flat["actor.model_name_or_path"], flat["ds.value_head_prefix"]
    yield from reward_model_problems(path, policy, prefix, flat["reward.normalize_enable"])


def _model_problem(path: str, needs_tokenizer: bool) -> str | None:
    if not os.path.exists(path):
        return "does not exist" if looks_local(path) else None  # else a name on a hub
    if not os.path.isdir(path):
        return "is a file; a model is a folder with config.json, weights and tokenizer"
    inside = {
        "config.json": os.path.isfile(os.path.join(path, "config.json")),
        f"weights ({' or '.join(WEIGHTS)})": any(
            glob.glob(os.path.join(glob.escape(path), pattern)) for pattern in WEIGHTS
        ),
    }
    if needs_tokenizer:
        inside["tokenizer files (tokenizer.json or the like)"] = any(
            os.path.isfile(os.path.join(path, name)) for name in TOKENIZERS
        )
    missing = [what for what, there in inside.items() if not there]
    return f"is no model: it lacks {', '.join(missing)}" if missing else None


def _rewards(flat: Flat) -> Iterator[str]:
    agent, url = flat["train.agent_func_path"], flat["reward.remote_url"]
    remote = bool(url) and not agent and not url.split(",")[0].endswith(".py")
    if flat["js.reward_weights"] is not None and not remote:
        yield "--js.reward_weights is for reward models that --reward.remote_url names"
    if remote and flat["reward.normalize_enable"] and flat["algo.advantage.estimator"] != "gae":
        yield (
            "--reward.normalize_enable normalises a reward model in Ray, and --reward.remote_url "
            "names servers: leave it out here and give it to `openrlhf-js rm serve`"
        )
    if not 0 < flat["js.reward_timeout_seconds"] < math.inf:
        yield "--js.reward_timeout_seconds must be more than 0, and finite"
    if agent:
        if problem := _python_problem(agent, "AgentExecutor"):
            yield f"--train.agent_func_path {agent}: {problem}"
    elif url:
        first = url.split(",")[0]
        if first.endswith(".py"):
            if problem := _python_problem(first, "reward_func"):
                yield f"--reward.remote_url {first}: {problem}"
        else:
            yield from _remote(url.split(","), flat["js.reward_weights"])
    elif not flat["reward.model_name_or_path"]:
        yield (
            "nothing gives rewards: give --reward.remote_url (a .py file or an address), "
            "--reward.model_name_or_path or --train.agent_func_path"
        )
    else:
        yield from _graded_too_late(flat)


def _graded_too_late(flat: Flat) -> Iterator[str]:
    """What needs rewards with the rollout, where a reward model in Ray gives them after it."""
    asked = {
        "--algo.advantage.estimator remax": flat["algo.advantage.estimator"] == "remax",
        "--eval.dataset": flat["eval.dataset"] and flat["eval.steps"] > 0,
        "--algo.dynamic_filtering_enable": flat["algo.dynamic_filtering_enable"],
    }
    for flag in filter(asked.get, asked):
        yield (
            f"{flag} needs rewards with the responses, and a reward model in Ray gives them "
            "later: serve it (`openrlhf-js rm serve`) and give --reward.remote_url"
        )


def _remote(addresses: list[str], weights: str | None) -> list[str]:
    try:
        parse(addresses, weights)
    except BadInput as error:
        return str(error).splitlines()
    return []


def _python_problem(path: str, name: str) -> str | None:
    """Whether the file exists and defines `name`; found by reading, nothing is executed."""
    if not path.endswith(".py"):
        return "is not a Python file (.py)"
    if not os.path.isfile(path):
        return "does not exist"
    try:
        nodes = _python_nodes(path)
    except SyntaxError as error:
        return f"is not Python (line {error.lineno}: {error.msg})"
    defined: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            defined.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            defined.add(node.id)
        elif isinstance(node, ast.alias):
            defined.add(node.asname or node.name)
    return None if {name, "*"} & defined else f"defines no {name}"


def _python_nodes(path: str) -> list[ast.AST]:
    with open(path, "rb") as file:
        return list(ast.walk(ast.parse(file.read())))


def _grades_by_datasource(flat: Flat) -> bool:
    """Whether the run's reward file imports our grader of mixed data."""
    path = (flat["reward.remote_url"] or "").split(",")[0]
    if flat["train.agent_func_path"] or _python_problem(path, "reward_func"):
        return False
    return any(getattr(node, "name", None) == MIXED for node in _python_nodes(path))


def _data(flat: Flat) -> tuple[list[str], int | None]:
    """The problems of both data sets, and the number of training prompts where it is known."""
    keys = Keys(
        flat["data.input_key"],
        flat["data.label_key"],
        flat["data.apply_chat_template"],
        _grades_by_datasource(flat),
    )
    names, probabilities = flat["data.prompt_dataset"], flat["data.prompt_probs"]
    if not names:
        return ["--data.prompt_dataset is missing: a file, a folder or a name on a hub"], None
    problems, prompts = check_datasets(
        names, "--data.prompt_dataset", keys, flat["data.prompt_split"]
    )
    if probabilities is not None:
        prompts = None  # drawn with replacement until every set is used up
        if probabilities.count(",") != names.count(","):
            problems.append(f"--data.prompt_probs {probabilities}: one for each of {names}")
    if flat["eval.dataset"]:
        problems += check_datasets(
            flat["eval.dataset"], "--eval.dataset", keys, flat["eval.split"]
        ).problems
    return problems, None if prompts is None else min(prompts, flat["data.max_samples"])
