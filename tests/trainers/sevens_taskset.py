"""A taskset of verifiers in two turns: the policy writes digits, its user says `Again`, it writes
again. Sevens are rewarded, and words cost."""

from typing import Any

import httpx
import verifiers.v1 as vf

__all__ = ["InProcess", "SevensTaskset", "TwoTurns"]


class Data(vf.TaskData):
    digit: str = "7"


class Sevens(vf.Task[Data, vf.State, vf.TaskConfig]):
    @vf.reward(weight=2.0)
    async def sevens(self, trace: vf.Trace) -> float:
        replies = "".join(str(message.content) for message in trace.assistant_messages)
        if "xxx" in replies:
            raise ValueError("xxx cannot be scored")
        return replies.count(self.data.digit) / 10

    @vf.reward(weight=-0.5)
    async def words(self, trace: vf.Trace) -> float:
        return float(" " in str(trace.assistant_messages[-1].content))

    @vf.metric
    async def turns(self, trace: vf.Trace) -> float:
        return float(trace.num_turns)


class SevensTaskset(vf.Taskset[Sevens, vf.TasksetConfig]):
    def load(self) -> Any:
        for number in range(8):
            yield Sevens(Data(prompt=f"Write {number}", system_prompt="Be brief"), self.config.task)


class InProcess(vf.Harness[vf.HarnessConfig]):
    """One reply to each message, without a process of its own."""

    APPENDS_SYSTEM_PROMPT = True
    SUPPORTS_RESUME = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self,
        ctx: Any,
        trace: Any,
        runtime: Any,
        endpoint: str,
        secret: str,
        mcp_urls: Any,
        data: Any,
    ) -> vf.ProgramResult:
        system, prompt = self.resolve_prompt(data)
        messages = [{"role": "system", "content": system}]
        if isinstance(prompt, str):
            messages.append({"role": "user", "content": prompt})
        else:
            messages += [{"role": each.role, "content": each.content or ""} for each in prompt]
        body = {"model": ctx.model, "messages": messages}
        headers = {"Authorization": f"Bearer {secret}"}
        async with httpx.AsyncClient(timeout=None) as client:
            url = f"{endpoint}/chat/completions"
            answer = await client.post(url, json=body, headers=headers)
        if answer.is_error:
            raise RuntimeError(answer.text)
        return vf.ProgramResult(exit_code=0, stdout="", stderr="")


class TwoTurnsConfig(vf.EnvConfig):
    agent: vf.AgentConfig = vf.AgentConfig()


class TwoTurns(vf.Env[TwoTurnsConfig]):
    async def run(self, task: Any, agents: Any) -> None:
        async with agents.agent.interaction(task) as interaction:
            segment = await interaction.turn()
            if not segment.terminated:
                await interaction.turn("Again")
