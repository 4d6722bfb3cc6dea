"""The settings of how and where responses are sampled, which programs inherit."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Literal, TypeAlias

from answer_graders.programs.model_folders import TRUSTED
from answer_graders.programs.settings import Failures, Field, Settings

PromptForm: TypeAlias = Literal["auto", "chat", "text"]
ROWS = {"transformers": 64, "vllm": 2048}  # responses at once, by default
DTYPES = {"bf16": "bfloat16", "fp16": "float16", "float32": "float32"}


def memory_failures() -> Failures:
    """What a program says where a model in this process finds no memory."""
    if not find_spec("torch"):  # it comes with paired-eval[local]
        return {}
    from torch import OutOfMemoryError

    message = "no memory is left: give a smaller --batch_size; the same command resumes"
    return {OutOfMemoryError: lambda error: message}


class EngineSettings(Settings):
    """Where a model in this process runs; inherited by every program that samples."""

    engine: Literal["auto", "vllm", "transformers"] = Field(
        "auto",
        description="library that samples; auto: vLLM on a GPU where it is installed, else "
        "transformers",
    )
    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto", description="where the model runs; auto: on a GPU if there is one"
    )
    dtype: Literal["auto", "bf16", "fp16", "float32"] = Field(
        "auto", description="dtype of the model; auto: bf16 on a GPU, float32 without one"
    )
    batch_size: int | None = Field(
        None,
        ge=1,
        description="responses that are sampled and saved together (default: 2048 with vLLM, 64 "
        "without)",
    )
    seed: int = Field(0, ge=0, description="random seed of the responses")
    trust_remote_code: bool = Field(False, description=TRUSTED)

    @property
    def device_name(self) -> str:
        """ "cpu" or "cuda"."""
        from torch import cuda

        if self.device != "auto":
            return self.device
        return "cuda" if cuda.is_available() else "cpu"

    @property
    def dtype_name(self) -> str:
        """torch's name of the dtype."""
        if self.dtype != "auto":
            return DTYPES[self.dtype]
        return DTYPES["bf16" if self.device_name == "cuda" else "float32"]

    @property
    def engine_name(self) -> str:
        """ "vllm" or "transformers"."""
        if self.engine != "auto":
            return self.engine
        installed = find_spec("vllm") is not None
        return "vllm" if installed and self.device_name == "cuda" else "transformers"

    @property
    def rows(self) -> int:
        """Responses in a batch."""
        return self.batch_size or ROWS[self.engine_name]

    def engine_identity(self) -> dict[str, str]:
        """What samples depend on, besides the model and the parameters."""
        return {"engine": self.engine_name, "dtype": self.dtype_name, "device": self.device_name}


class ThinkingSettings(Settings):
    """Further thinking marks; inherited by every program that grades or judges."""

    thinking_mark: tuple[str, ...] = Field(
        (),
        description="names of marks that stand around thoughts, such as musing for <musing>; "
        "beside those that say thinking",
    )


class ServerSettings(EngineSettings):
    """Where a model runs: in this process, or behind an address."""

    key_env: str | None = Field(
        None, description="environment variable that holds the server's API key"
    )
    concurrency: int = Field(64, ge=1, description="requests to the server at the same time")
    timeout: float = Field(
        600.0, gt=0, allow_inf_nan=False, description="seconds to wait for one reply"
    )
    max_tokens_name: Literal["max_tokens", "max_completion_tokens"] = Field(
        "max_tokens", description="name under which the server takes --max_new_tokens"
    )
    omit: tuple[Literal["temperature", "top_p", "seed"], ...] = Field(
        (), description="fields that the server does not take, and is not sent"
    )
    same_model: bool = Field(
        False,
        description="resume although the server gives another address, name or folder of the model",
    )


class SamplingSettings(EngineSettings):
    """How responses are sampled, and where."""

    max_new_tokens: int = Field(1024, ge=1, description="most tokens of a response")
    temperature: float = Field(
        1.0, gt=0, allow_inf_nan=False, description="sampling temperature, above 0"
    )
    top_p: float = Field(
        1.0, gt=0, le=1, description="probability mass that is sampled from (top-p), up to 1"
    )
