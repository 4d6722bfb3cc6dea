"""`openrlhf-js quickstart`: make a tiny model, train it, and see what the baseline changes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import model_validator

from answer_graders.programs import curves_command
from answer_graders.programs.console import say
from answer_graders.programs.files import make_folder
from answer_graders.programs.settings import Field, Settings, program
from baseline_research.study.design import InlineStudy, StackStudy
from baseline_research.tiny.supervise import ProgramFailed, explained, prepare_libraries
from baseline_research.tiny.tasks import QUICKSTART

PROG = "openrlhf-js quickstart"
MODEL = "Qwen2 of 0.65M parameters"
SEPARATORS = frozenset(",@*?[]")  # OpenRLHF and datasets do not accept these in a path
STACK: dict[str, Any] = {"prompts": [64], "responses": [4], "learning_rates": [3e-4]}
PAIRED: dict[str, Any] = {
    "estimators": ["rloo", "js", "js_grad"],
    "learning_rates": [2e-4],  # on sort each of them trains better with it than with 1e-4
    "steps": 45,  # decided between rloo and js_grad from each of ten starts (docs/results.md)
}


class QuickstartSettings(Settings):
    """Make a tiny model, train it with js_grad, and compare js_grad with rloo and js.

    It makes everything itself: a model of 0.65M parameters, its tokenizer, and a task. The model
    first imitates careless demonstrations. Then the real stack (Ray, DeepSpeed, vLLM, OpenRLHF)
    trains it, with 64 prompts x 4 responses a step. Last, this process trains it from the same
    start with rloo, js and js_grad at 16 prompts x 2 responses, paired by seed.

    examples:
      bash scripts/quickstart.sh                              # some three minutes on two cores
      bash scripts/quickstart.sh --seeds 0                    # the real stack alone
      bash scripts/quickstart.sh --compare rloo,js,js_grad    # three estimators on the real stack
      bash scripts/quickstart.sh --task maze --out runs/mine  # a stopped one resumes with its --out

    results, in one folder:
      compared.png        paired differences and learning curves
      study.html          the same with every figure
      stack/*/model       a trained Hugging Face checkpoint; beside it its log and all metrics
    """

    task: str = Field("sort", description=f"task that the model learns: {', '.join(QUICKSTART)}")
    estimator: str = Field(
        "js_grad", description="advantage estimator of the run on the real stack"
    )
    compare: str = Field(
        "", description="estimators A,B,... to train on the real stack, one after the other"
    )
    seed: int = Field(
        0, ge=0, lt=2**31, description="random seed of the model and its held-out prompts"
    )
    steps: int = Field(10, ge=2, description="number of training steps on the real stack")
    seeds: int = Field(
        4, ge=0, description="number of seeds of the paired runs, 3 runs each; 0: none"
    )
    out: Path | None = Field(
        None, description="folder of the results (default: runs/quickstart-<time>)"
    )

    @model_validator(mode="after")
    def _check(self) -> QuickstartSettings:
        if self.task not in QUICKSTART:
            raise ValueError(f"unknown task {self.task!r}; choose from {', '.join(QUICKSTART)}")
        separators = SEPARATORS & set(str((self.out or Path()).absolute()))
        if separators:
            raise ValueError(f"--out {self.out} must not contain {' '.join(sorted(separators))}")
        self.stack(Path())
        return self

    @property
    def plan(self) -> str:
        """What it will do."""
        plan = f"imitation, {self.steps} steps on Ray, DeepSpeed and vLLM"
        runs = len(PAIRED["estimators"]) * self.seeds
        return f"{plan}, {runs} short runs" if runs else plan

    def stack(self, folder: Path) -> StackStudy:
        """The study that the real stack trains."""
        return StackStudy(
            estimators=self.compare.split(",") if self.compare else [self.estimator],
            seeds="1",
            steps=self.steps,
            **STACK,
            **self._start(folder),
        )

    def paired(self, folder: Path) -> InlineStudy:
        """The study that is trained in this process."""
        return InlineStudy(seeds=str(self.seeds), **PAIRED, **self._start(folder))

    def _start(self, folder: Path) -> dict[str, Any]:
        return {"tasks": [self.task], "start_seed": self.seed, "out": folder}


def main(argv: Sequence[str]) -> int:
    """Runs the quickstart. Exit status: 0 done, 1 failed, 2 wrong flags, 130 interrupted."""
    failures: Any = {ProgramFailed: explained}
    return program(PROG, QuickstartSettings, work, argv, failures=failures)


def work(settings: QuickstartSettings) -> None:
    """Warm start, the real stack, then the paired runs."""
    began = time.monotonic()
    default_folder = Path("runs", f"quickstart-{datetime.now():%Y%m%d-%H%M%S}")
    folder = (settings.out or default_folder).absolute()
    make_folder(folder)
    say(f"quickstart: {settings.task}, {MODEL}, seed {settings.seed}")
    say(f"{settings.plan}; by default some three minutes on two cores")
    say(f"if stopped, it resumes with --out {folder}")
    prepare_libraries()
    _train_on_the_stack(settings, folder)
    if settings.seeds:
        _compare_in_pairs(settings, folder)
    say(f"models       {folder / 'stack'}/*/model")
    say(f"all metrics\n  {curves_command(folder / 'stack')}")
    say(f"{time.monotonic() - began:.0f} seconds")


def _train_on_the_stack(settings: QuickstartSettings, folder: Path) -> None:
    """The warm start, and training from it on Ray, DeepSpeed and vLLM."""
    from baseline_research.study import running
    from baseline_research.study.inline import prompts
    from baseline_research.tiny.policy import load

    study = settings.stack(folder)
    running.prepare(study)
    start = load(study.start_of(settings.task))
    before = prompts.held_out_pass1(settings.task, study, start)
    say(f"✓ warm start: pass@1 {before:.1%} ({study.pass1_in_words})")
    for record in running.run_all(study):
        say(
            f"✓ {record['estimator']} on Ray, DeepSpeed and vLLM, {record['steps']} steps of 64 x "
            f"4: pass@1 {before:.1%} -> {record['pass1']:.1%}"
        )
    say("  during training its log has pass@1 of 2 responses to each")


def _compare_in_pairs(settings: QuickstartSettings, folder: Path) -> None:
    """Training in this process, paired by seed, with a picture and a page."""
    from baseline_research.study import analysis, page, running, tables

    study = settings.paired(folder)
    records = running.run_all(study)
    findings = analysis.analyse(records, study.compared_with)
    page_path = page.write(folder, findings, study.title)
    say(f"✓ {len(records)} runs at 16 x 2 in this process, paired by seed:")
    tables.print_tables(findings)
    say(f"\npicture      {folder / page.PICTURE}\nall figures  {page_path}")
