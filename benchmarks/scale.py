"""What grows with what: the controller's work on a rollout batch, the estimators, grading.

Upstream's and our own code run as they stand, with pickle in Ray's place; seconds are CPU time. A
slope is of log cost over log size between two sizes: median of the rounds (least to largest).
"""

from __future__ import annotations

import logging
import pickle
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from timeit import timeit
from types import SimpleNamespace as Namespace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from grading_pool import against_model, makespan
from markdown_table import print_table
from ray import cloudpickle

from openrlhf_js.estimators import Past, PromptMemory, advantage, diagnostics, make_batch
from openrlhf_js.plugin.run import prepare_device
from openrlhf_js.tasks.pool import MOST_WORKERS

M, WORDS, RANKS = 8, 143_262, (1, 4, 16, 64)  # responses per prompt; of a tokenizer
STEPS = {
    "arrive": "responses become tensors",
    "split_rollout_samples": "padded into micro-batches",
    "make_experience": "to policy and reference, log-probs back",
    "ours": "**ours**: rewards gathered, `js_memory`, diagnostics",
    "_train_on": "**ours**: advantages spread over the tokens",
    "append": "experiences to the ranks",
    "GB": "gigabytes through Ray",
    "loop": "upstream in the place of ours: a loop over the tokens",
}
RUNS = {  # prompts, responses, tokens, micro-batch, GPUs, assumed seconds of a step without these
    "0.5B, 1 GPU, b = 8": (128, 1024, 1024, 8, 1, 60),
    "8B, 64 GPUs, b = 8": (1024, 16_384, 8192, 8, 64, 1200),
    "8B, 64 GPUs, b = 1": (1024, 16_384, 8192, 1, 64, 1200),
}
SENT = f"a tokenizer of {WORDS:,} words, once a run; upstream for each prompt"
ALL, GPUS = "**all of it, seconds**", "GPUs at which that is 5 % of a step"
once = partial(timeit, number=1, timer=time.process_time)


def spread(values: Any) -> str:
    return f"{np.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def controller(responses: int, tokens: int, b: int, ranks: int) -> dict[str, float]:
    """The cost of each of STEPS for one rollout batch, in micro-batches of b responses."""
    from openrlhf.trainer.ppo_utils import experience_maker
    from openrlhf.trainer.ray import launcher
    from openrlhf.utils.config import hierarchize

    from openrlhf_js.plugin import experience, flags, parser, rollout

    flat, taken, sent = parser.upstream_parser(), {}, []
    flags.add_flags(flat)
    sizes = f"--rollout.n_samples_per_prompt {M} --rollout.micro_batch_size {b}"
    args = hierarchize(flat.parse_args(f"--algo.advantage.estimator js_memory {sizes}".split()))
    logits = torch.zeros(responses // b // ranks, b, tokens - 1)  # of a rank
    back = cloudpickle.dumps([*map(torch.clone, logits)])
    generator = rollout.OrderedSamples.__new__(rollout.OrderedSamples)
    group = launcher.RayActorGroup.__new__(launcher.RayActorGroup)
    generator.args, group.duplicate_actors = args, 1
    group._actor_handlers = [Namespace(execute_batch=Namespace(remote=lambda *_: back))] * ranks
    rest = Namespace(value=0.01), Namespace(args=args), Namespace(pad_token_id=0)
    maker = experience.ShrinkageExperienceMaker(group, None, None, group, *rest)
    said = {"observation_tokens": torch.randint(WORDS, (tokens,)).tolist(), "label": "1"}
    said |= {"action_ranges": [(tokens // 8, tokens)], "rollout_log_probs": None}
    own = ({"prompt": f"{i // M}", "reward": i % 3 / 2} for i in range(responses))
    arrived = [pickle.dumps({**said, **each, rollout.PROMPT_NUMBER: 0}) for each in own]

    def clock(name: str, call: Callable[..., Any], *given: Any, **named: Any) -> Any:
        began = time.process_time()
        result = call(*given, **named)
        taken[name] = time.process_time() - began
        return result

    base, read = experience_maker.RemoteExperienceMaker, generator._process_response_into_experience
    calls = {name: getattr(base, name) for name in STEPS if hasattr(base, name)}
    timed = {n: lambda *a, n=n, call=call: clock(n, call, *a) for n, call in calls.items()}
    instead = {
        "put": lambda value: sent.append(cloudpickle.dumps(value)) or sent[-1],
        "get": lambda r: pickle.loads(r) if isinstance(r, bytes) else [*map(pickle.loads, r)],
    }
    ours = experience.ShrinkageExperienceMaker
    spread_out = ours._train_on
    timed_ours = {"_train_on": lambda *a: clock("_train_on", spread_out, *a)}
    with (
        patch.multiple(base, **timed),
        patch.multiple(ours, **timed_ours),
        patch.multiple("ray", **instead),
    ):
        samples = clock("arrive", lambda: [read(pickle.loads(r), max_len=tokens) for r in arrived])
        made = clock("ours", maker.make_experience_batch, samples)
        clock("append", group.async_run_method_batch, "append", experience=made)
    taken["ours"] -= sum(taken[name] for name in [*calls, *timed_ours])
    loop = partial(base.get_cumulative_returns, None, logits[0], logits[0] > 0, 1.0)
    taken["loop"] = timeit(loop, number=responses // b, timer=time.process_time)
    return {**taken, "GB": sum(map(len, [*arrived, *sent, *[back] * 2 * ranks])) / 1e9}


def others(share: float) -> dict[str, float]:
    """Seconds of what else a step does, at a share of the sizes that the names say."""
    from openrlhf.utils.seqlen_balancing import get_seqlen_balanced_partitions
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    n, memory, found = int(share * 10**6), PromptMemory(), {}
    rewards, keys = torch.rand(n // M, M), torch.randint(2**62, (n,))
    past = Past(torch.rand(n // M, dtype=torch.float64))
    for name, given in ("js", None), ("js_plus", None), ("js_memory", past):
        both = (partial(each, name, rewards, past=given) for each in (advantage, diagnostics))
        found[f"`{name}` and its diagnostics, 1,000,000 rewards"] = sum(map(once, both))
    memory.learn(make_batch(torch.rand(n, 1), keys=keys, step=1))
    visit = make_batch(torch.rand(1000, M), keys=keys[:1000], step=2)
    note = partial(memory.learn, visit)
    found["`js_memory` notes 1,000 prompts of 1,000,000"] = once(note)
    lengths = torch.randint(2048, 8193, (int(1024 * share),)).tolist()
    balance = partial(get_seqlen_balanced_partitions, lengths, sum(lengths) // 16_384, False)
    found["upstream: dynamic batches, 1,024 responses"] = once(balance)
    letters = [f"{i:03}" for i in range(int((WORDS * share) ** 0.5))]
    merges = [*product(letters, letters)]
    words = {word: i for i, word in enumerate([*letters, *map("".join, merges)])}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE(words, merges)))
    found[SENT] = once(partial(cloudpickle.dumps, tokenizer))
    read = partial(pickle.loads, cloudpickle.dumps(tokenizer))
    return found | {"the same, read by its engine": once(read)}


def main(scale: int = 1, rounds: int = 5) -> None:
    """Prints the tables; `scale` divides the sizes."""
    prepare_device("cpu")
    logging.disable()

    def rows(run: Callable[..., dict[str, float]], sizes: Sequence[float]) -> dict[str, list[str]]:
        found, shown = [[run(size) for size in sizes] for _ in range(rounds)], {}
        for key in found[0][0]:
            last, most = np.array([[each[key] for each in row[-2:]] for row in found]).T
            slopes = np.log(most / last) / np.log(sizes[-1] / sizes[-2])
            shown[key] = [f"{np.median(most):.3g}", spread(slopes)]
        return shown

    tokens = 256 // scale
    wide = rows(lambda ranks: controller(16 * ranks, tokens, 8, ranks), RANKS)
    deep = rows(lambda tokens: controller(128, tokens, 8, 8), (4 * tokens, 16 * tokens))
    columns = f"64 ranks x 16 responses x {tokens} tokens", "seconds", "in ranks", "in tokens"
    print_table(columns, ([STEPS[k], *wide[k], deep[k][1]] for k in STEPS))
    other, table = rows(others, (1 / 8 / scale, 1 / scale)), []
    print()
    print_table(("what else", "seconds", "slope"), ([k, *other[k]] for k in other))
    service, own, ratios = against_model(96 // scale, rounds)
    for workers in (1, 2, MOST_WORKERS, 64, 1024):
        rate = f"{10**4 / makespan(np.resize(service, 10**4), workers, own):,.0f}"
        table += [[workers, rate, spread(ratios[workers]) if workers in ratios else ""]]
    print()
    print_table(("workers", "answers a second", "real / model"), table)
    upstreams = "upstream in the place of ours: a tokenizer for each prompt"
    lines = {text: [text] for text in [*STEPS.values(), upstreams, ALL, GPUS]}
    for prompts, responses, tokens, b, gpus, step in RUNS.values():
        some = [controller(64, tokens // scale, b, 1) for _ in range((rounds + 1) // 2)]
        cost = {t: responses / 64 * np.median([s[k] for s in some]) for k, t in STEPS.items()}
        many = [controller(1024 // scale, 16, b, 1)["ours"] for _ in some]  # whatever the tokens
        cost[STEPS["ours"]] = responses / (1024 // scale) * np.median(many)
        cost[ALL] = sum(cost.values()) - cost[STEPS["GB"]] - cost[STEPS["loop"]]
        cost[upstreams] = prompts * float(other[SENT][0])
        cost[GPUS] = 0.05 * step * gpus / cost[ALL]
        for text, each in cost.items():
            lines[text].append(f"{each:,.0f}" if each > 99 else f"{each:.3g}")
    print()
    print_table(("one step", *RUNS), lines.values())


if __name__ == "__main__":
    main()
