"""The flags of the lab's programs; their docstrings are the programs' help."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import model_validator

from answer_graders.programs.settings import Field, Settings
from paired_eval.sampling.settings import SamplingSettings

BASELINES = ("js", "js_grad", "bloo", "reinforce++", "dr_grpo", "remax")
ORACLE = "js_fixed"  # with the best constant coefficient
LIMIT = "best_constant"  # of each prompt, which only responses outside the batch tell
PROMPTS = 128  # as in the paper; so are the responses
RESPONSES = 128
OWN = "your own as FILE.py:NAME"
BEST = f"{ORACLE} is the best constant lambda, which only the true values tell"
WITHOUT_MODEL = {"out", "prompts_count", "responses", "device", "seed", "trust_remote_code"}


class LabSettings(SamplingSettings):
    """Samples once, as in training, into OUT/samples, for every program of the lab.

    The same command resumes. More --responses or --prompts_count sample only what is missing;
    another --reward grades again without sampling; without --model the stored samples are used.
    """

    out: Path = Field(description="folder of samples and results")
    model: tuple[str, ...] = Field(
        (),
        description="policy, a folder or a hub id; of mse and gradient also several checkpoints",
    )
    prompts: tuple[Path, ...] = Field(
        (),
        description="prompt files (JSON, JSON lines, CSV or Parquet), as of a run; several are "
        "groups by name",
    )
    reward: Path | None = Field(
        None, description="Python file with reward_func; default: the task of each row's datasource"
    )
    prompts_count: int | None = Field(
        None,
        ge=1,
        description=f"number of prompts drawn from each file (default: {PROMPTS}, or all)",
    )
    responses: int | None = Field(
        None,
        ge=1,
        description=f"number of responses to each prompt (default: {RESPONSES}, or those there "
        "are)",
    )
    input_key: str = Field("input", description="column of the rows that holds the prompt")
    label_key: str = Field(
        "label", description="column of the rows that holds the label; '' for none"
    )
    apply_chat_template: bool = Field(
        False,
        description="put prompts into the tokenizer's chat template, as --data.apply_chat_template",
    )
    input_template: str | None = Field(
        None, description="text around a prompt, such as 'User: {}\\nAssistant: '"
    )

    @model_validator(mode="after")
    def _consistent(self) -> LabSettings:
        if bool(self.model) != bool(self.prompts):
            raise ValueError("--model and --prompts need each other")
        if len(self.model) > 1 and not isinstance(self, MseSettings | GradientSettings):
            raise ValueError("only lab mse and lab gradient take several --model")
        if len({path.stem for path in self.prompts}) < len(self.prompts):
            raise ValueError("two --prompts files have the same name, which is that of their group")
        for name, field in LabSettings.model_fields.items():
            is_given = getattr(self, name) != field.default
            if is_given and not self.model and name not in WITHOUT_MODEL:
                raise ValueError(f"--{name} needs --model: without it, samples are taken as is")
        if self.input_template is not None and "{}" not in self.input_template:
            raise ValueError("--input_template needs a {} where the prompt goes")
        return self


class ValueSettings(LabSettings):
    """Each prompt's value: the mean reward of many responses, with its standard error."""


class BatchSettings(LabSettings):
    """The batches to draw from the samples."""

    m: tuple[int, ...] = Field(
        (2, 4, 8), description="numbers of responses to each prompt of a batch"
    )
    batch_prompts: int | None = Field(
        None, ge=2, description="number of prompts in a batch (default: half of all)"
    )
    batches: int = Field(2000, ge=2, description="number of batches drawn for each m")


class MseSettings(BatchSettings):
    """How far every baseline is from the true value, on responses of a model.

    Small batches are drawn from many responses. A prompt's value is estimated by the mean reward of
    the responses outside the batch, and the squared error of that mean is subtracted.
    """

    baselines: tuple[str, ...] = Field(
        (*BASELINES, ORACLE), description=f"baselines to compare with rloo; {OWN}; {BEST}"
    )


class ScoreSettings(BatchSettings):
    """Score gradients: one pass per response, with the sketch kept in OUT/gradients."""

    gradient_dtype: Literal["bf16", "fp16", "float32"] = Field(
        "float32", description="dtype of the model in these passes; sums are float32"
    )


class GradientSettings(ScoreSettings):
    """How far the policy gradients of batches are from the true one, by estimator.

    One pass per response takes its score gradient and keeps a sketch of it in OUT/gradients. The
    gradient of any batch and estimator is a sum of these. Distance: the mean of ||g - T||^2, with T
    the true gradient of the batch's prompts; to all: of all prompts, as in the paper. Reductions
    are against rloo, paired by batch. Estimators with memory see streams of --steps batches, in
    which no prompt repeats, and are judged in the second half and in the first batch. dr_grpo has
    rloo's gradient times (m - 1)/m: its shorter steps are nearer, but biased. best_constant, a
    limit, is the constant of each prompt that brings the gradient nearest. It is estimated from
    responses that are neither in the batch nor behind the true gradient.
    """

    steps: int = Field(
        10, ge=1, description="number of batches in a stream, all of this one policy"
    )
    baselines: tuple[str, ...] = Field(
        BASELINES,
        description="baselines to compare with rloo, without the scale that some divide by; "
        f"{OWN}; {LIMIT}, which no training knows",
    )


class HeterogeneitySettings(ScoreSettings):
    """The distance to the true gradient for every lambda from 0 (rloo) to 1 (bloo).

    Also shows where js is. Results are for each group of prompts (a datasource, or a --prompts
    file) and for a mix with equal shares of all. Least distance: the lambda with the least mean
    distance; its reduction is measured on half of the responses, with the lambda that is best for
    the other half.
    """

    m: tuple[int, ...] = Field((4,), description="numbers of responses to each prompt of a batch")


class SimulateSettings(Settings):
    """How far every baseline is from the true value in simulated prompts, without a model.

    A value is the probability of reward 1. Values: beta:A,B; two_point:LOW,HIGH,SHARE.
    """

    out: Path = Field(description="folder of results")
    values: str = Field(
        "beta:0.5,0.5",
        description="distribution of the prompts' values: beta:A,B or two_point:LOW,HIGH,SHARE",
    )
    prompts_count: int = Field(64, ge=2, description="number of prompts in a batch")
    m: tuple[int, ...] = Field((2, 4, 8), description="numbers of responses to each prompt")
    baselines: tuple[str, ...] = Field(
        ("js", "js_grad", ORACLE), description=f"baselines to compare with rloo; {BEST}"
    )
    all: bool = Field(False, description="compare every baseline that needs no model")
    rounds: int = Field(4000, ge=2, description="number of batches for each m")
    seed: int = Field(0, ge=0, description="random seed of the draws")
