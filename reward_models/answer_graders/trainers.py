"""The graders as rewards of TRL, ms-swift, verl, SkyRL and verifiers, which are not needed here.

The task of a row is the one named for all rows; without a name it is that of the row's datasource,
such as `math/math500`. A label or datasource that is missing or malformed is a ValueError, never a
reward.

These trainers show a reward messages or decoded text, not the end of the prompt that the chat
template writes. Where that opens a thought, give it as `prompt_end="<think>"`; then a thought that
is never closed earns nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from statistics import mean
from typing import Any

from answer_graders.answers import without_end_marks
from answer_graders.marks import opening_mark
from answer_graders.record import STATUSES, Score
from answer_graders.rewards import grade, in_threads, row_task
from answer_graders.tasks import task_of


@dataclass(eq=False)
class RowGrader:
    """What the rewards below share: where they find the task and the gold answer of a row.

    Args:
        task: the task of all rows; None: each row's datasource names it.
        label: the column of the gold answer.
        datasource: the column that names the task where `task` is None.
        prompt_end: the end of a prompt by the chat template, where that opens a thought.

    Raises:
        ValueError: `task` is unknown, or `prompt_end` opens no thought.
    """

    task: str | None = None
    _: KW_ONLY
    label: str = "label"
    datasource: str = "datasource"
    prompt_end: str = ""

    def __post_init__(self) -> None:
        self.__name__ = task_of(self.task).name if self.task else "answer"  # in a trainer's log
        if self.prompt_end and not opening_mark(self.prompt_end):
            raise ValueError(f"prompt_end={self.prompt_end!r} opens no thought: leave it out")

    def score(self, row: Mapping[str, Any], response: str, prompt: str = "") -> Score:
        """The score of a response to a row; ValueError if the row does not say what is right."""
        for name in [self.label] if self.task else [self.label, self.datasource]:
            if name not in row:
                raise ValueError(f"a row has no {name!r}; name the column, as in label='answer'")
        task = row_task(self.task, row.get(self.datasource))
        response = without_end_marks(response)
        return grade(task, response, row[self.label], prompt + self.prompt_end)


class CompletionReward(RowGrader):
    """One of TRL's `reward_funcs`, and what an entry of ms-swift's `orms` returns.

    TRL also logs the share of each status.
    """

    def __call__(
        self,
        completions: Sequence[Any],
        prompts: Sequence[Any] | None = None,
        log_metric: Callable[[str, float], None] | None = None,
        **columns: Any,
    ) -> list[float]:
        """(B,) rewards of completions: texts, or messages of which the last is graded."""
        names = [name for name in (self.label, self.datasource) if name in columns]
        rows = [{name: columns[name][row] for name in names} for row in range(len(completions))]
        responses = [_written(completion) for completion in completions]
        before = [_written(prompt) for prompt in prompts or [""] * len(rows)]
        scores = in_threads(self.score, rows, responses, before)
        if log_metric is not None:
            statuses = [_statuses(self, score) for score in scores]
            for name in statuses[0]:
                log_metric(name, mean(status[name] for status in statuses))
        return [score.value for score in scores]


class TraceReward(RowGrader):
    """A reward of verifiers: `vf.reward(TraceReward("math"))` in a task, or a plugged `fn`.

    Its columns are fields of the task's data. The trace gets the status as a metric.
    """

    async def __call__(self, trace: Any) -> float:
        """The reward of the last reply."""
        score = await asyncio.to_thread(self.score, dict(trace.task.data), trace.last_reply)
        trace.record_metrics(_statuses(self, score))
        return score.value


def compute_score(
    data_source: Any,
    solution_str: str,
    ground_truth: Any,
    extra_info: Any = None,
    task: str | None = None,
    prompt_end: str = "",
) -> dict[str, float | str]:
    """verl's `reward.custom_reward_function`; `reward_kwargs` may be `task` and `prompt_end`."""
    grader = RowGrader(task, prompt_end=prompt_end)
    score = grader.score({"label": ground_truth, "datasource": data_source}, solution_str)
    is_correct = float(score.status == "correct")
    return {"score": score.value, "acc": is_correct, "status": score.status}


def skyrl_environment(task: str | None = None, **settings: Any) -> type:
    """The `entry_point` of SkyRL's `register`: an environment of one turn.

    It reads `reward_spec.ground_truth` of a row, and without a task `data_source`.
    """
    from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput

    grader = RowGrader(task, label="ground_truth", datasource="data_source", **settings)

    class GradedAnswer(BaseTextEnv):  # type: ignore[misc]
        def __init__(self, env_config: Any, extras: Mapping[str, Any]):
            super().__init__()
            self.row = {**extras, **extras.get("reward_spec", {})}
            self.metrics: dict[str, float] = {}

        def step(self, action: str) -> BaseTextEnvStepOutput:
            score = grader.score(self.row, action)
            self.metrics = _statuses(grader, score)
            return BaseTextEnvStepOutput(
                observations=[], reward=score.value, done=True, metadata={"status": score.status}
            )

        def get_metrics(self) -> dict[str, float]:
            return self.metrics

    return GradedAnswer


def _statuses(grader: RowGrader, score: Score) -> dict[str, float]:
    """1 for the status of a score and 0 for the others, under the grader's name."""
    name = grader.__name__
    return {f"{name}/{status}": float(score.status == status) for status in STATUSES}


def _written(text: Any) -> str:
    """A text, or the last message's if it is the model's own; a tool's message is no answer."""
    if isinstance(text, str):
        return text
    last = text[-1] if text else {}
    content = last.get("content") if last.get("role") == "assistant" else None
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(part.get("text", "") for part in content)
