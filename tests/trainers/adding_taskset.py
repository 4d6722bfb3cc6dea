"""A taskset of verifiers with a tool, which adds two numbers."""

from typing import Any

import verifiers.v1 as vf

__all__ = ["AddingTaskset"]


class Adder(vf.Toolset[vf.ToolsetConfig]):
    TOOL_PREFIX = "sum"

    @vf.tool
    async def add(self, a: int, b: int) -> str:
        """The sum of two numbers."""
        return f"The sum is {a + b}"


class Adding(vf.Task[vf.TaskData, vf.State, vf.TaskConfig]):
    @classmethod
    def toolsets(cls, config: Any) -> list[vf.Toolset]:
        return [Adder(vf.ToolsetConfig())]

    @vf.reward
    async def right(self, trace: vf.Trace) -> float:
        return float("5" in trace.last_reply)


class AddingTaskset(vf.Taskset[Adding, vf.TasksetConfig]):
    def load(self) -> Any:
        yield Adding(vf.TaskData(prompt="What is 2 + 3?"), self.config.task)


if __name__ == "__main__":  # verifiers runs the tool's server so
    Adder.run()
