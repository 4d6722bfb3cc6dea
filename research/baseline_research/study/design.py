"""What a study trains: its settings, and the runs that follow from them."""

from __future__ import annotations

import hashlib
import itertools
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, TypeVar

from pydantic import model_validator
from tyro.conf import Suppress

from answer_graders.programs.files import fingerprint
from answer_graders.programs.settings import Field, Settings
from baseline_research.study.own_flags import missing_flags, training_flags
from baseline_research.study.runs import OWN, Cell, Run, seeds_of
from baseline_research.study.versions import model_hash, task_version
from baseline_research.tiny.tasks import PRETRAINED, TASKS
from openrlhf_js.estimators.catalogue import find_estimator, in_training
from openrlhf_js.estimators.own import parse_own
from openrlhf_js.estimators.record import Estimator
from paired_eval.sampling.settings import DTYPES

SEEDS = r"^\d{1,9}(-\d{1,9})?$"

Mix: TypeAlias = Literal["alike", "natural", "mixed"]
StackMix: TypeAlias = Literal["natural", "mixed"]

T = TypeVar("T")
NonEmpty: TypeAlias = Annotated[list[T], Field(min_length=1)]


class StudySettings(Settings):
    """What the studies of both engines have in common."""

    engine: ClassVar[str]

    tasks: NonEmpty[str] = Field(
        ["sort"], description=f"tasks that the model learns: {', '.join(TASKS)}"
    )
    mixes: NonEmpty[Mix] = Field(
        ["natural"],
        description="mixes of prompts; alike: of similar pass rate; natural: as drawn; mixed: a "
        "third are solved already, and a third cannot be solved",
    )
    estimators: NonEmpty[str] = Field(
        ["rloo", "js", "js_grad"],
        description="estimators to train with; the others are compared with the first",
    )
    prompts: NonEmpty[Annotated[int, Field(ge=2)]] = Field(
        [16], description="numbers of prompts in a batch"
    )
    responses: NonEmpty[Annotated[int, Field(ge=1)]] = Field(
        [2], description="numbers of responses to each prompt"
    )
    learning_rates: NonEmpty[Annotated[float, Field(gt=0, lt=1)]] = Field(
        [3e-4], description="learning rates to try; each estimator is shown at its best"
    )
    budget: int = Field(
        0,
        ge=0,
        description="number of responses in a batch, in place of --prompts and --responses: each "
        "estimator is shown at its own best split of them; 0: none",
    )
    splits: NonEmpty[Annotated[int, Field(ge=1)]] = Field(
        [1, 2, 4, 8, 16], description="with --budget: numbers of responses to each prompt to try"
    )
    choice_seeds: str = Field(
        "100-101",
        pattern=SEEDS,
        description="with --budget: seeds on which each estimator's split and learning rate are "
        "chosen; those of --seeds train with the chosen ones alone",
    )
    seeds: str = Field(
        "10",
        pattern=SEEDS,
        description="seeds of the paired runs: a number, for 0, 1, ..., or FIRST-LAST, such as "
        "100-109",
    )
    steps: int = Field(60, ge=2, description="number of training steps of every run")
    distinct: int = Field(
        0,
        ge=0,
        description="number of prompts that come again and again; 0: new ones in every batch",
    )
    model: Path | None = Field(
        None,
        description="folder of a pretrained Qwen2 or Llama in place of the tiny model; needs "
        f"--tasks {' or '.join(PRETRAINED)}, whose form it imitates first",
    )
    dtype: Literal["auto", "bf16", "float32"] = Field(
        "auto",
        description="dtype of the pretrained model's passes; auto: bf16 on a GPU or where the "
        "processor computes in it, float32 where it is slower there",
    )
    width: int = Field(
        128, ge=16, multiple_of=8, description="width of the tiny model, a multiple of 8"
    )
    layers: int = Field(3, ge=1, description="number of layers of the tiny model")
    start_seed: int = Field(
        0, description="random seed of the warm start, and of which prompts are held out"
    )
    held_out: int = Field(200, ge=20, description="number of held-out prompts of a task")
    samples: int = Field(
        8,
        ge=0,
        description="number of responses to each held-out prompt, for pass@1 after training; 0: "
        "the probability of the right response, exact where one alone is right",
    )
    jobs: int | None = Field(
        None,
        ge=1,
        description="number of runs at once (default: all cores; on a GPU, or with the stack, 1)",
    )
    out: Path = Field(Path("runs/study"), description="folder of the study's results")

    @model_validator(mode="after")
    def _check(self) -> StudySettings:
        for name in self.tasks:
            if name not in TASKS:
                raise ValueError(f"unknown task {name!r}; choose from {', '.join(TASKS)}")
        if not self.seed_range:
            raise ValueError(f"--seeds {self.seeds}: give a number above 0, or FIRST-LAST: 100-109")
        for split in self.splits if self.budget else []:
            if self.budget % split:
                divisors = [n for n in range(1, self.budget) if self.budget % n == 0]
                raise ValueError(
                    f"--splits: {split} responses to each prompt do not divide --budget "
                    f"{self.budget}; choose from {', '.join(map(str, divisors))}"
                )
            if self.budget == split:
                raise ValueError(
                    f"--splits: {split} responses leave one prompt in a batch of --budget "
                    f"{self.budget}; leave this split out"
                )
        if "mixed" in self.mixes and min(cell.prompts for cell in self.cells()) < 3:
            raise ValueError("the mix 'mixed' needs 3 prompts in a batch")
        if self.budget and not self.choice:
            raise ValueError(
                f"--choice_seeds {self.choice_seeds}: give a number above 0, or FIRST-LAST: 100-101"
            )
        if set(self.choice) & set(self.seed_range):
            raise ValueError(
                "--choice_seeds and --seeds must differ: no run takes part in its own choice"
            )
        if any((name in PRETRAINED) != bool(self.model) for name in self.tasks):
            tasks = " or ".join(PRETRAINED)
            raise ValueError(f"--model and --tasks {tasks} are for each other: give both")
        return self

    @model_validator(mode="after")
    def _check_estimators(self) -> StudySettings:
        """Checks estimators as training does, before anything is loaded."""
        for name in self.estimators:
            record = self.record_of(name)
            if record is None:
                continue
            lacking = [record.lacks(cell.prompts, cell.responses) for cell in self.cells()]
            if all(lacking) or (any(lacking) and not self.budget):
                flags = "--budget, --splits" if self.budget else "--prompts, --responses"
                raise ValueError(f"{flags}: {name} {next(filter(None, lacking))}")
            if record.needs_shrinkage and not self.gives_shrinkage:
                raise ValueError(f"{name} needs --engine stack ... -- --js.shrinkage, from 0 to 1")
        return self

    @staticmethod
    def record_of(name: str) -> Estimator | None:
        """What is said of an estimator; None for one that is not ours."""
        return find_estimator(name)

    @property
    def gives_shrinkage(self) -> bool:
        """Whether there is a value for `js_fixed`."""
        return False

    @property
    def device_name(self) -> str:
        """ "cpu" or "cuda"."""
        return "cpu"

    @property
    def dtype_name(self) -> str:
        """torch's name of the dtype of the pretrained model's passes."""
        if self.dtype != "auto":
            return DTYPES[self.dtype]
        if self.device_name == "cuda":
            return DTYPES["bf16"]
        import torch

        quick_in_bf16 = torch.ops.mkldnn._is_mkldnn_bf16_supported()
        return DTYPES["bf16" if quick_in_bf16 else "float32"]

    @property
    def seed_range(self) -> range:
        """The seeds of the paired runs."""
        return seeds_of(self.seeds)

    @property
    def choice(self) -> range:
        """With a budget, the seeds on which splits and learning rates are chosen; else none."""
        return seeds_of(self.choice_seeds) if self.budget else range(0)

    @property
    def compared_with(self) -> str:
        """The first estimator, the reference."""
        return next(iter(self.estimator_names))

    @property
    def estimator_names(self) -> dict[str, str]:
        """Maps an estimator's name in records to the name under which it is computed."""
        names = {}
        for name in self.estimators:
            own = parse_own(name)
            names[_label_of(name)] = name if own is None else own.spec
        return names

    def estimator_name(self, label: str) -> str:
        """The name under which an estimator of the records is computed.

        Raises ValueError for a user's own estimator whose file has changed since.
        """
        names = self.estimator_names
        if label not in names:
            raise ValueError(f"{label} is none of {', '.join(names)}: has its file changed?")
        return names[label]

    @property
    def title(self) -> str:
        """The estimators, tasks and model that are compared."""
        model_name = self.model.name if self.model else f"a Qwen2 of width {self.width}"
        estimators = ", ".join(self.estimator_names)
        return f"{estimators}: {', '.join(self.tasks)} with {model_name}"

    @property
    def pass1_in_words(self) -> str:
        """What pass@1 after training is the mean of."""
        if self.samples == 0:
            return f"the probability of the right response on {self.held_out} held-out prompts"
        return f"{self.samples} responses to each of {self.held_out} held-out prompts"

    def start_of(self, task: str) -> Path:
        """The folder of the model that all runs of a task start from."""
        size = f"w{self.width}-l{self.layers}"
        if self.model is not None:
            size = f"{self.model.name}-{model_hash(self.model.absolute())}-{self.dtype_name}"
        name = f"{task}-{size}-s{self.start_seed}-h{self.held_out}"
        return self.out.absolute() / "warm_start" / f"{name}-{task_version(TASKS[task])}"

    def cells(self) -> list[Cell]:
        """All cells."""
        kinds = itertools.product(self.tasks, self.mixes, self.sizes())
        return [Cell(task, mix, *size) for task, mix, size in kinds]

    def sizes(self) -> list[tuple[int, int]]:
        """All sizes of a batch: prompts, and responses to each."""
        if self.budget:
            return [(self.budget // responses, responses) for responses in self.splits]
        return list(itertools.product(self.prompts, self.responses))

    def runs(self) -> list[Run]:
        """All runs without a budget, seed by seed, so that an unfinished study has whole pairs."""
        runs = [
            Run(*cell, estimator=estimator, learning_rate=learning_rate, seed=seed)
            for seed in self.seed_range
            for cell in self.cells()
            for learning_rate in self.learning_rates
            for estimator in self.estimator_names
        ]
        return list(dict.fromkeys(runs))

    def identity(self) -> dict[str, Any]:
        """The settings that all runs of a study share: with others, they are no pairs."""
        manifest = self.manifest()
        names = ("steps", "width", "layers", "start_seed", "held_out", "samples")
        identity = {"engine": self.engine, **{name: manifest[name] for name in names}, "train": []}
        if self.distinct:  # newer than some stores
            identity["distinct"] = self.distinct
        if self.model is not None:
            identity["model"] = model_hash(self.model.absolute())
            identity["dtype"] = self.dtype_name
        return identity

    def files(self) -> dict[str, str]:
        """Fingerprints of the user's own data and models; runs with other ones cannot be paired."""
        return {}


class InlineStudy(StudySettings):
    """Train with several estimators from one start, on paired seeds, and compare them.

    Every combination of the listed values is a run; runs of one seed share the warm start and the
    prompts in their order. This process trains a tiny model in seconds, with plain REINFORCE
    (with `--passes` several steps with each batch): it is for laptops. With --engine stack,
    `openrlhf-js train` trains it, or your model with the flags that follow `--` (`--engine stack
    --help`). A stopped study resumes.

    examples:
      openrlhf-js study --estimators rloo bloo js_grad --seeds 10
      openrlhf-js study STUDY.yaml --out runs/study            # the same names, without dashes
      openrlhf-js study --engine stack --estimators rloo js_grad --learning_rates 1e-6 2e-6 \\
          --seeds 5 --print -- --actor.model_name_or_path MODEL --data.prompt_dataset DATA \\
          --eval.dataset HELD_OUT --eval.steps 50 ...

    results, in --out:
      runs-*.jsonl    one record a run
      rows.csv        every figure with its interval: settings, quantity, value, low, high
      study.html      paired differences by mix, learning curves, tables
      compared.png    the same in brief
    """

    engine: ClassVar[str] = "inline"

    warm_up: int = Field(
        0, ge=0, description="number of first steps over which the learning rate rises"
    )
    passes: int = Field(1, ge=1, description="number of optimizer steps with each batch")
    clip: float = Field(
        0.2,
        ge=0,
        description="how far the ratio of probabilities may leave 1 in later passes over a batch, "
        "as in PPO; 0: as far as it goes",
    )
    kl: float = Field(
        0.0, ge=0, description="coefficient of the KL divergence from the start, in the loss"
    )
    loss: Literal["token_mean", "constant"] = Field(
        "token_mean",
        description="what the tokens' losses are divided by: the tokens of the batch; or, for a "
        "gradient that is unbiased, the most tokens that its responses may have",
    )
    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto",
        description="where the model is trained; auto: the pretrained one on a GPU if there is "
        "one, else on the processor",
    )

    @property
    def device_name(self) -> str:
        """ "cpu" or "cuda"."""
        if self.device != "auto":
            return self.device
        if self.model is None:
            return "cpu"
        from torch import cuda

        return "cuda" if cuda.is_available() else "cpu"

    def identity(self) -> dict[str, Any]:
        """The settings that all runs of a study share: with others, they are no pairs."""
        identity = super().identity()
        for name in ("warm_up", "passes", "clip", "kl", "loss"):  # newer than some stores
            if getattr(self, name) != type(self).model_fields[name].default:
                identity[name] = getattr(self, name)
        if self.device_name != "cpu":
            identity["device"] = self.device_name
        return identity


class StackStudy(StudySettings):
    """Train with several estimators on Ray, DeepSpeed and vLLM, on paired seeds, and compare them.

    Every combination of the listed values is a run of `openrlhf-js train`: with the tiny model on
    the inline engine's tasks, or with your model and data and the flags that follow `--`. A stopped
    study resumes; with --print, a cluster trains the runs.

    examples:
      openrlhf-js study --engine stack --estimators rloo bloo --mixes mixed --seeds 3
      openrlhf-js study --engine stack --estimators rloo js_grad --learning_rates 1e-6 2e-6 \\
          --seeds 5 --print -- --actor.model_name_or_path MODEL --data.prompt_dataset DATA \\
          --eval.dataset HELD_OUT --eval.steps 50 ...

    results, in --out: as without --engine stack; stack/ has what each run leaves.
    """

    engine: ClassVar[str] = "stack"

    mixes: NonEmpty[StackMix] = Field(  # type: ignore[assignment]
        ["natural"],
        description="mixes of the tiny model's prompts; natural: as drawn; mixed: a third are "
        "solved already, and a third cannot be solved",
    )
    width: int = Field(
        128, ge=128, multiple_of=128, description="width of the tiny model, a multiple of 128"
    )  # vLLM on a CPU knows no smaller heads
    print: bool = Field(False, description="print the commands of unfinished runs; train nothing")
    train: Annotated[list[str], Suppress] = Field(
        [], description="flags of `openrlhf-js train`, behind --"
    )

    @model_validator(mode="after")
    def _check_stack(self) -> StackStudy:
        missing = missing_flags(self.train)
        if self.train and any(flag.startswith("--eval.") for flag in missing):
            raise ValueError(
                f"your model is compared by its evaluations: behind --, give {' '.join(missing)}"
            )
        has_model = "actor.model_name_or_path" in dict(training_flags(self.train))
        if has_model and any(flag.startswith("--reward.") for flag in missing):
            raise ValueError(f"your model has no reward: behind --, give {' '.join(missing)}")
        return self

    @staticmethod
    def record_of(name: str) -> Estimator | None:
        """What is said of an estimator; None for one that is not ours."""
        return in_training(name).record

    @property
    def gives_shrinkage(self) -> bool:
        """Whether there is a value for `js_fixed`."""
        return "js.shrinkage" in dict(training_flags(self.train))

    @property
    def title(self) -> str:
        """What is compared, on which tasks or data and which model."""
        if not self.train:
            return super().title
        flags = dict(training_flags(self.train))
        data = Path(flags.get("data.prompt_dataset", "")).name
        model = Path(flags.get("actor.model_name_or_path", "")).name
        return f"{', '.join(self.estimator_names)}: {data} with {model}"

    def cells(self) -> list[Cell]:
        """All cells; for the user's own data, which have no tasks or mixes, only the sizes."""
        if not self.train:
            return super().cells()
        return [Cell(OWN, "natural", *size) for size in self.sizes()]

    def identity(self) -> dict[str, Any]:
        """The settings that all runs of a study share: with others, they are no pairs."""
        return {**super().identity(), "train": self.train}

    def files(self) -> dict[str, str]:
        """Fingerprints of the files, data folders and model folders in the training flags."""
        fingerprints = {}
        for flag, value in training_flags(self.train):
            holds_data = flag.endswith(("dataset", "name_or_path"))
            for name in {value, *value.split(",")} - {""}:
                path = Path(name)
                if path.is_file():
                    fingerprints[str(path)] = fingerprint([path])
                elif path.is_dir() and holds_data:
                    files = [file for file in path.rglob("*") if file.is_file()]
                    fingerprints[str(path)] = fingerprint(files)
        return fingerprints


def _label_of(estimator: str) -> str:
    """An estimator's name in saved results; for a user's own, with a hash of its file."""
    own = parse_own(estimator)
    if own is None:
        return estimator
    if not own.file.is_file():
        raise ValueError(f"{estimator}: there is no such file.")
    version = hashlib.sha256(own.file.read_bytes()).hexdigest()[:8]
    return f"{own.file.name}:{own.name}@{version}"


Study: TypeAlias = InlineStudy | StackStudy
