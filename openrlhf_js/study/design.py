"""What a study trains: its settings, and the runs that they stand for."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, TypeVar

from pydantic import model_validator
from tyro.conf import Suppress

from openrlhf_js.common.settings import Field, Settings
from openrlhf_js.estimators import ESTIMATORS
from openrlhf_js.tiny.tasks import MIXES, TASKS

OWN = "own"  # the task of a study that trains with the user's flags
OF_OWN = ("data.prompt_dataset", "actor.model_name_or_path")  # what they name
UPSTREAM = ("reinforce_baseline", "flash_reinforce", "gae")  # on the stack alone
TRACKER = "spo"  # the value tracker of Single-stream Policy Optimization; inline alone
LEAST_STACK_WIDTH = 128  # 4 heads of 32, the smallest of vLLM's attention on CPU

T = TypeVar("T")
Some: TypeAlias = Annotated[list[T], Field(min_length=1)]


class Run(NamedTuple):
    """One training; runs of one seed have the same start, prompts and order."""

    task: str
    mix: str
    prompts: int  # in a batch
    responses: int  # to each prompt
    vary: str  # further flags, as `name=value name=value`
    estimator: str
    learning_rate: float
    seed: int

    @property
    def name(self) -> str:
        """A name for files."""
        cell = f"{self.task}-{self.mix}-{self.prompts}x{self.responses}"
        varied = "".join(f"-{each}" for each in self.vary.replace("/", "_").split())
        return f"{cell}{varied}-{self.estimator}-{self.learning_rate:g}-{self.seed}"


class StudySettings(Settings):
    """Train with several estimators from one start, on paired seeds, and compare them.

    Every combination of what is listed is a run; runs of one seed share warm start, prompts and
    their order. The inline engine trains a tiny model in this process, in seconds, as plain
    REINFORCE with one update a batch: it is for laptops. The stack engine runs `openrlhf-js train`,
    on the tiny model, or on yours with the flags that follow `--`. A stopped study resumes.

    examples:
      openrlhf-js study --estimators rloo bloo js_plus --seeds 10
      openrlhf-js study STUDY.yaml --out runs/study            # the same names, without dashes
      openrlhf-js study --engine stack --estimators rloo js --learning_rates 1e-6 2e-6 --seeds 5 \\
          --print -- --actor.model_name_or_path MODEL --data.prompt_dataset DATA ...

    results, in --out:
      runs-*.jsonl    one record a run
      rows.csv        every figure with its interval: settings, quantity, value, low, high
      study.html      tables of paired differences, learning curves
    """

    tasks: Some[str] = Field(["sort"], description=f"of the tiny model: {', '.join(TASKS)}")
    mixes: Some[str] = Field(
        ["natural"],
        description="alike: prompts of similar pass rate; natural: as drawn; mixed: a third are "
        "solved already, and a third cannot be solved",
    )
    estimators: Some[str] = Field(["rloo", "bloo", "js_plus"], description="to compare")
    reference: str | None = Field(None, description="compared with the others (default the first)")
    prompts: Some[Annotated[int, Field(ge=2)]] = Field([16], description="prompts in a batch")
    responses: Some[Annotated[int, Field(ge=1)]] = Field([2], description="to each prompt")
    learning_rates: Some[Annotated[float, Field(gt=0, lt=1)]] = Field(
        [3e-4], description="each estimator is shown at its best"
    )
    seeds: int = Field(10, ge=1, description="number of paired runs: seeds 0, 1, ...")
    steps: int = Field(60, ge=2, description="of training, in every run")
    distinct: int = Field(
        0, ge=0, description="prompts that are visited again and again; 0: new ones in every batch"
    )
    offline: int = Field(
        0,
        ge=0,
        description="responses of the warm start to each prompt that js_memory and spo know",
    )
    vary: list[str] = Field([], description="NAME=A,B,...: any flag of training; stack alone")
    engine: Literal["inline", "stack"] = Field("inline", description="what trains")
    width: int = Field(128, ge=16, multiple_of=8, description="of the tiny model")
    layers: int = Field(3, ge=1, description="of the tiny model")
    start_seed: Annotated[int, Suppress] = Field(0, description="of warm start and split")
    held_out: int = Field(200, ge=20, description="held-out prompts of the tiny tasks")
    samples: int = Field(8, ge=1, description="responses to each, for pass@1 after training")
    jobs: int | None = Field(None, ge=1, description="runs at once (inline: number of cores)")
    print: bool = Field(False, description="print commands and a Slurm job array; train nothing")
    train: Annotated[list[str], Suppress] = Field([], description="flags of training, behind --")
    out: Path = Field(Path("runs/study"), description="folder of the study")

    @model_validator(mode="after")
    def _check(self) -> StudySettings:
        known = ESTIMATORS.keys() - {"js_fixed"}  # which needs a coefficient of its own
        known = (known - {"reinforce"}) | {*UPSTREAM} if self.stack else known | {TRACKER}
        for flag, given, names in (
            ("tasks", self.tasks, TASKS),
            ("mixes", self.mixes, MIXES),
            ("estimators", self.estimators, sorted(known)),
        ):
            if unknown := [each for each in given if each not in names]:
                raise ValueError(f"--{flag} {unknown[0]!r} is none of {', '.join(names)}")
        if self.compared_with not in self.estimators:
            raise ValueError(f"--reference {self.reference} is not among the estimators")
        for each in (ESTIMATORS[name] for name in self.estimators if name in ESTIMATORS):
            if min(self.responses) < each.least_responses:
                raise ValueError(f"--responses {min(self.responses)} is too few for {each.summary}")
        if (self.train or self.vary or self.print) and not self.stack:
            raise ValueError("flags of training, --vary and --print need --engine stack")
        if bad := [each for each in self.vary if not each.partition("=")[2]]:
            raise ValueError(f"--vary {bad[0]} must be NAME=A,B,...")
        if self.offline and self.stack:
            raise ValueError("--offline is for the inline engine; on the stack: --js.warm_memory")
        if self.stack and not self.train and self.width < LEAST_STACK_WIDTH:
            raise ValueError(f"vLLM takes no model so narrow: --width {LEAST_STACK_WIDTH}")
        if "mixed" in self.mixes and min(self.prompts) < 3:
            raise ValueError("the mix 'mixed' needs 3 prompts in a batch")
        if "mixed" in self.mixes and self.stack and self.tasks != ["sort"]:
            raise ValueError("on the stack, only --tasks sort has the mix 'mixed'")
        if "alike" in self.mixes and self.stack:
            raise ValueError("the mix 'alike' is for the inline engine")
        return self

    @property
    def compared_with(self) -> str:
        """The reference."""
        return self.reference or self.estimators[0]

    @property
    def title(self) -> str:
        """What is compared, on which tasks or data and which model."""
        given = dict(itertools.pairwise(part for word in self.train for part in word.split("=", 1)))
        of = [Path(given.get(f"--{name}", "")).name for name in OF_OWN]
        tiny = [", ".join(self.tasks), f"a Qwen2 of width {self.width}"]
        return f"{', '.join(self.estimators)}: {' with '.join(of if self.train else tiny)}"

    def start_of(self, task: str) -> Path:
        """The folder of the model that all runs of a task start from."""
        name = f"{task}-w{self.width}-l{self.layers}-s{self.start_seed}-h{self.held_out}"
        return self.out.absolute() / "warm_start" / name

    @property
    def stack(self) -> bool:
        """Whether the real stack trains."""
        return self.engine == "stack"

    def runs(self) -> list[Run]:
        """All runs, seed by seed, so that an unfinished study has whole pairs."""
        tasks, mixes = ([OWN], ["natural"]) if self.train else (self.tasks, self.mixes)
        cells = itertools.product(tasks, mixes, self.prompts, self.responses, self._varied())
        choices = itertools.product(range(self.seeds), cells, self.learning_rates, self.estimators)
        found = [
            Run(task, mix, prompts, responses, vary, name, rate, seed)
            for seed, (task, mix, prompts, responses, vary), rate, name in choices
        ]
        return list(dict.fromkeys(found))

    def _varied(self) -> list[str]:
        parts = [each.partition("=") for each in self.vary]
        values = [[f"{name}={value}" for value in rest.split(",")] for name, _, rest in parts]
        return [" ".join(each) for each in itertools.product(*values)]

    def identity(self) -> dict[str, Any]:
        """The settings that all runs of a study share: with others, they are no pairs."""
        shared = ("engine", "steps", "width", "layers", "start_seed", "held_out", "samples")
        more = [name for name in ("distinct", "offline") if getattr(self, name)]
        return {name: self.manifest()[name] for name in (*shared, *more, "train")}
