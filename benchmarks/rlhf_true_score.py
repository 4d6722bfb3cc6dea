"""Do responses truly become better when a policy learns from a reward model?

On preferences with a known truth: the reward model is trained on labels drawn from true scores, the
policy on the reward model's rewards, on the real stack, and then the true scores of its responses
are looked at, which neither has seen. Policy and reward model start from the same careless policy,
and the prompts of the measurements are held out from both.

The rise is that of the mean true score, responses being sampled at temperature 1 before and after.
A run's interval is over prompts, that of several runs over seeds (Student's t). "In sds": divided
by the standard deviation over all responses of the policy to begin with. True scores and rewards
are both in log-odds of being preferred: where the reward rises by more than the true score, the
policy has found what only the reward model likes. A seed decides on prompts, their order and all
sampling; the reward model and the policy to begin with are the same for all.

A call with the same folder goes on where the last one was stopped, and measures nothing twice.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from rich.console import Console
from rlhf_runs import (
    Floats,
    Measured,
    Run,
    evaluate_reward_model,
    kept,
    make_reward_model,
    measure,
    train,
)

from openrlhf_js.report.runs import REWARD, Scalars
from openrlhf_js.stats import Estimate, clustered_mean, paired_difference
from openrlhf_js.tiny import preference_run, preferences
from openrlhf_js.tiny.preferences import TASK
from openrlhf_js.tiny.quickstart import ESTIMATORS, prepare_libraries
from openrlhf_js.tiny.screen import Screen, Stage
from openrlhf_js.tiny.supervise import ProgramFailed, last_lines

BEST = preferences.true_score("abc", "abc")  # of any right response


class Found(NamedTuple):
    """All that was measured."""

    reward_model: dict[str, Any]
    before: Measured
    after: dict[Run, Measured]
    seconds: dict[Run, float]


class Row(NamedTuple):
    """Of one run, or the mean of an estimator's."""

    mean: float
    rise: Estimate
    rise_in_sds: Estimate
    reward_rise: Estimate
    seconds: float

    def plain(self) -> dict[str, Any]:
        """The same for JSON."""
        return {
            key: value.plain() if isinstance(value, Estimate) else value
            for key, value in self._asdict().items()
        }


def difference(a: Floats, b: Floats) -> Estimate:
    """The mean of a minus that of b, both (prompts, responses), with an interval over prompts."""
    return paired_difference(a.mean(1), b.mean(1)).estimate


def divided(value: Estimate, by: float) -> Estimate:
    return Estimate(*(each / by for each in value))


def shown(value: Estimate) -> str:
    """Such as 3.10 (3.02 to 3.18)."""
    return f"{value.value:.2f} ({value.low:.2f} to {value.high:.2f})"


def work(runs: list[Run], folder: Path, options: argparse.Namespace, screen: Screen) -> Found:
    """Makes and measures what is not there yet; reads the rest."""
    policy, samples = folder / preference_run.POLICY, options.samples

    def pulse(stage: Stage) -> Callable[[], None]:
        return lambda: screen.step(stage, 0, stage.note)

    with screen.stage("prepare", "imitating", TASK.warm_start_steps) as stage:
        if not (policy / "tokenizer_config.json").is_file():  # written last
            preference_run.prepare(
                folder,
                train=options.pairs,
                on_step=lambda step, loss: screen.step(stage, step, f"loss {loss:.2f}"),
            )
    with screen.stage("reward model", "training") as stage:
        if not (folder / "rm").is_dir():
            make_reward_model(folder, pulse(stage))
    with screen.stage("evaluate it", "held-out pairs") as stage:
        evaluate = partial(evaluate_reward_model, folder, pulse(stage))
        quality = kept(folder / "rm_evaluation.json", evaluate)
    with screen.stage("before", "held-out prompts"):
        path = folder / f"before-{samples}.json"
        before = Measured.read(kept(path, partial(measure, policy, folder, samples, seed=0)))
    after, seconds = {}, {}
    for run in runs:
        own = folder / run.name
        with screen.stage(run.name, "starting Ray, vLLM, DeepSpeed", run.steps) as stage:
            steps = partial(show_steps, Scalars(own / "tensorboard" / "run"), screen, stage)
            training = kept(own / "trained.json", partial(train, run, folder, own, steps))
            look = partial(measure, own / "model", folder, samples, seed=1 + run.seed)
            after[run] = Measured.read(kept(own / f"after-{samples}.json", look))
            seconds[run] = training["seconds"]
    return Found(quality, before, after, seconds)


def show_steps(logged: Scalars, screen: Screen, stage: Stage) -> None:
    """The steps that TensorBoard knows of, and the last one's mean reward."""
    logged.reload()
    reward = logged[REWARD]
    note = f"reward {reward.values[-1]:.2f}" if reward.values else stage.note
    screen.step(stage, reward.steps[-1] if reward.steps else 0, note)


def rises(found: Found) -> dict[str, Any]:
    """What the table shows: by run with intervals over prompts, by estimator over seeds."""
    before, seconds = found.before, found.seconds
    sd = float(before.true_scores.std(ddof=1))
    by_run, by_estimator = {}, {}
    for run, after in found.after.items():
        rise = difference(after.true_scores, before.true_scores)
        reward = difference(after.rewards, before.rewards)
        mean = float(after.true_scores.mean())
        by_run[run] = Row(mean, rise, divided(rise, sd), reward, seconds[run])
    for name in dict.fromkeys(run.estimator for run in by_run):
        own = [row for run, row in by_run.items() if run.estimator == name]
        rise = clustered_mean([row.rise.value for row in own])
        reward = clustered_mean([row.reward_rise.value for row in own])
        mean, took = fmean(row.mean for row in own), fmean(row.seconds for row in own)
        by_estimator[name] = Row(mean, rise, divided(rise, sd), reward, took)
    return {"sd": sd, "by_run": by_run, "by_estimator": by_estimator}


def js_minus_rloo(found: Found) -> tuple[Estimate, str] | None:
    """The difference of the mean true scores by seed, and what its interval is over."""
    scores = {(run.estimator, run.seed): each.true_scores for run, each in found.after.items()}
    seeds = [seed for name, seed in scores if name == "js" and ("rloo", seed) in scores]
    if not seeds:
        return None
    if len(seeds) == 1:
        return difference(scores["js", seeds[0]], scores["rloo", seeds[0]]), "prompts"
    gaps = [scores["js", seed].mean() - scores["rloo", seed].mean() for seed in seeds]
    return clustered_mean(gaps), f"{len(seeds)} seeds"


def report(found: Found) -> str:
    """The table and what it says, as Markdown."""
    quality, before, figures = found.reward_model, found.before.true_scores, rises(found)
    accuracy, truth = Estimate(**quality["accuracy"]), quality["accuracy_of_truth"]
    prompts, responses = before.shape
    lines = [
        f"Reward model: accuracy on held-out pairs {100 * accuracy.value:.1f} % "
        f"({100 * accuracy.low:.1f} to {100 * accuracy.high:.1f}), the true scores' "
        f"{100 * truth:.1f} %, so {100 * accuracy.value / truth:.1f} % of it; "
        f"calibration error {quality['calibration_error']:.3f}",
        f"Before: mean true score {before.mean():.2f}, sd over responses {figures['sd']:.2f}, "
        f"best possible {BEST:.2f}; {prompts} held-out prompts x {responses} responses each time",
        "",
        "| run | true score | rise (95 %) | in initial sds (95 %) | rise of the reward (95 %) "
        "| minutes |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    table = {f"{run.estimator}, seed {run.seed}": row for run, row in figures["by_run"].items()}
    for name, row in figures["by_estimator"].items():
        seeds = sum(run.estimator == name for run in found.after)
        if seeds > 1:
            table[f"{name}, {seeds} seeds"] = row
    for name, row in table.items():
        cells = " | ".join(map(shown, (row.rise, row.rise_in_sds, row.reward_rise)))
        lines.append(f"| {name} | {row.mean:.2f} | {cells} | {row.seconds / 60:.1f} |")
    if gap := js_minus_rloo(found):
        lines += ["", f"js - rloo, true score: {shown(gap[0])}, over {gap[1]}"]
    return "\n".join(lines)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--folder", type=Path, default=Path("runs/rlhf-true-score"), help="default: %(default)s")
    add("--seeds", default="0,1,2", help="default: %(default)s")
    add("--estimators", default="js,rloo", help="default: %(default)s")
    add("--steps", type=int, default=50, help="of a run (default: %(default)s)")
    add("--learning_rate", type=float, default=1e-3, help="default: %(default)s")
    add("--kl", type=float, default=0.0, help="coefficient of the KL term (default: none)")
    add("--samples", type=int, default=32, help="per held-out prompt (default: %(default)s)")
    add("--pairs", type=int, default=64_000, help="for the reward model (default: %(default)s)")
    options = parser.parse_args()
    try:
        options.seeds = [int(seed) for seed in options.seeds.split(",")]
    except ValueError:
        parser.error(f"--seeds {options.seeds}: give numbers with commas between, such as 0,1,2")
    options.estimators = options.estimators.split(",")
    if unknown := [name for name in options.estimators if name not in ESTIMATORS]:
        parser.error(f"--estimators {unknown[0]}: choose from {', '.join(ESTIMATORS)}")
    if min(options.steps, options.samples, options.pairs) < 2:
        parser.error("--steps, --samples and --pairs must be 2 or more")
    options.folder = options.folder.absolute()
    return options


def main() -> None:
    options = parse()
    folder, rest = options.folder, (options.steps, options.learning_rate, options.kl)
    runs = [Run(name, seed, *rest) for seed in options.seeds for name in options.estimators]
    folder.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # nothing may be left running
    prepare_libraries()
    stages = ["prepare", "reward model", "evaluate it", "before", *(run.name for run in runs)]
    try:
        with Screen("true score after RLHF", stages, Console(stderr=True)) as screen:
            found = work(runs, folder, options, screen)
    except ProgramFailed as failure:
        sys.exit("\n".join([f"{failure}; see {failure.log}", *last_lines(failure.log)]))
    except KeyboardInterrupt:
        sys.exit("stopped; the same call goes on from here")
    figures, gap = rises(found), js_minus_rloo(found)
    result = {
        "settings": {**vars(options), "folder": str(folder)},
        "reward_model": found.reward_model,
        "before": {"mean": found.before.true_scores.mean(), "sd": figures["sd"], "best": BEST},
        "runs": {run.name: row.plain() for run, row in figures["by_run"].items()},
        "estimators": {name: row.plain() for name, row in figures["by_estimator"].items()},
        "js_minus_rloo": gap and {**gap[0].plain(), "over": gap[1]},
    }
    text = json.dumps(result, indent=2, allow_nan=False)
    (folder / "results.json").write_text(text + "\n", encoding="utf-8")
    print(report(found))


if __name__ == "__main__":
    main()
