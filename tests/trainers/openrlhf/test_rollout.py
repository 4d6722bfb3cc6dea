"""Rollouts are seeded and ordered, and have no reward that nobody computed."""

import asyncio
import itertools
import math
import random
import sys
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
import ray
import ray.cloudpickle
import torch
from kit import upstream_args
from openrlhf.trainer.ppo_utils import samples_generator
from openrlhf.trainer.ppo_utils.length_penalty import apply_overlong_penalty
from openrlhf.trainer.ray import vllm_engine

from openrlhf_js.common.processors import FORBIDDEN
from openrlhf_js.trainers.openrlhf import rollout
from openrlhf_js.trainers.openrlhf.graders import as_number, settle
from openrlhf_js.trainers.openrlhf.records import EVALUATION, Label, Outcome, Prompt
from openrlhf_js.trainers.openrlhf.rewards import RewardServers
from openrlhf_js.trainers.openrlhf.rollout import (
    OUTCOME,
    CheckedExecutor,
    ExitCalled,
    GradingThreads,
    OrderedSamples,
    Stored,
    rollout_class,
    task_without_exits,
)
from openrlhf_js.trainers.openrlhf.upstream import BadInput, BadReward, plain_class


def test_one_finite_number_is_a_reward_and_nothing_else_is():
    for reward in (1, 0.5, True, [0.5], torch.tensor([2.0]), np.float32(3)):
        assert as_number(reward) == float(torch.as_tensor(reward).flatten()[0])
    for reward in (None, math.nan, math.inf, "good", [], [1.0, 2.0], {"a": 1}):
        with pytest.raises(BadReward):
            as_number(reward)


class _Engine:
    async def generate(self, tokens, params, multi_modal_data=None):
        output = SimpleNamespace(token_ids=[5, 6], finish_reason="stop", logprobs=None)
        return SimpleNamespace(outputs=[output])


class _Tokenizer:
    def __call__(self, text, **_):
        return {"input_ids": torch.tensor([[1, 2, 3]])}

    def decode(self, tokens, **_):
        return "the query"


async def execute(executor, label="the label") -> dict:
    return await executor.execute(
        prompt="the prompt",
        label=Label(label, "maze"),
        sampling_params=SimpleNamespace(max_tokens=4, logprobs=None),
        max_length=16,
        hf_tokenizer=_Tokenizer(),
        llm_engine=_Engine(),
    )


def respond(tmp_path, grader: str):
    """A response that a grader with this body has graded; its reward is not settled."""
    path = tmp_path / "grader.py"
    path.write_text(f"def reward_func(queries, prompts, labels):\n    {grader}\n")

    async def run():
        loop = asyncio.get_running_loop()
        loop.set_task_factory(task_without_exits)  # both as the actor does
        loop.set_default_executor(GradingThreads(1))
        return await execute(CheckedExecutor([str(path)], None, 10))

    return asyncio.run(run())


def test_a_good_reward_passes_as_a_float_with_logs_of_any_one_number(tmp_path):
    logs = "{'a': 1, 'b': True, 'c': __import__('numpy').ones(1)}"
    response = respond(tmp_path, f"return {{'rewards': [0.25], 'extra_logs': {logs}}}")
    assert settle(response, "stop") is None
    assert (response["reward"], response["scores"]) == (0.25, 0.25)
    assert response["extra_logs"] == {"a": 1, "b": True, "c": 1}
    for logs in ({"kind": "maze"}, {"kind": None}, {"n": [1, 2]}, [1]):
        for on_bad_reward in ("stop", "mask"):  # no response of that grader could be logged
            with pytest.raises(BadInput, match=r"not a (number|dict)"):
                settle({"reward": 1.0, "extra_logs": logs}, on_bad_reward)


BAD = {
    "raise KeyError('gone')": "KeyError: 'gone'",
    "import sys; sys.exit(3)": "SystemExit(3)",
    "exec('raise KeyboardInterrupt')": "KeyboardInterrupt()",
    "next(iter(()))": "a next() found nothing",
    "return None": "NoneType",
    "return {'rewards': [float('nan')]}": "[nan]",
}


def check_bad(response, message):
    """It stops a run with its prompt, or is marked for masking."""
    with pytest.raises(BadReward, match="the prompt") as caught:
        settle(response, "stop")
    assert message in str(caught.value)
    assert message in settle(response, "mask")
    assert math.isnan(response["reward"])
    assert response["scores"] is None


@pytest.mark.parametrize(("grader", "message"), BAD.items())
def test_a_bad_reward_stops_or_is_marked_for_masking(tmp_path, grader, message):
    check_bad(respond(tmp_path, grader), message)


def test_a_served_reward_that_cannot_be_had_stops_or_is_marked_for_masking():
    nobody = "http://127.0.0.1:9/get_reward"
    remote = RewardServers([nobody], timeout_seconds=0.5)
    remote = ray.cloudpickle.loads(ray.cloudpickle.dumps(remote))  # as it travels to an actor

    async def respond():
        response = await execute(CheckedExecutor([nobody], remote))
        await remote.close()
        return response

    check_bad(asyncio.run(respond()), "no reward within 0.5 s")


def test_graders_that_hang_cost_their_own_rewards_and_no_other(tmp_path, monkeypatch):
    monkeypatch.setattr(rollout, "GRADING_THREADS", 2)
    path = tmp_path / "grader.py"
    path.write_text(
        "import threading\nhang = threading.Event()\n"
        "def reward_func(queries, prompts, labels):\n"
        "    labels[0] == 'hang' and hang.wait(20)\n"
        "    return {'rewards': [1.0]}\n"
    )

    async def run():
        executor = CheckedExecutor([str(path)], None, 0.5)
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2))
        labels = ["hang"] * 2 + ["fine"] * 4
        responses = await asyncio.gather(*(execute(executor, label) for label in labels))
        executor.reward_func.__globals__["hang"].set()
        return responses

    responses = asyncio.run(run())
    assert [response["reward"] for response in responses[2:]] == [[1.0]] * 4
    for response in responses[:2]:
        assert "within 0.5 s (--js.reward_timeout_seconds)" in settle(response, "mask")


# --- engines ------------------------------------------------------------------------------------


class _Params:
    temperature = 0.7
    top_p = 0.9
    top_k = 40
    seed = None
    stop = None


class _Rollout:
    """Upstream's rollout actor, whose model is a table of `rewards` for one response each."""

    executor = object()  # an agent's, of its own making
    rewards = itertools.repeat(1.0)

    async def generate_responses(
        self, prompt, label, sampling_params, num_samples, hf_tokenizer, images=None
    ):
        assert (prompt, label, images) == ("prompt", "label", ["1.png"])
        self.tokenizers = [*getattr(self, "tokenizers", []), hf_tokenizer]
        await self.generate([1, 2], sampling_params)
        reward = 9.0 if sampling_params.temperature == 0 else next(self.rewards)
        response = {"prompt": prompt, "reward": reward, "scores": reward, "extra_logs": {}}
        return [dict(response) for _ in range(num_samples)]

    async def generate(self, prompt_token_ids, sampling_params):
        self.asked = [*getattr(self, "asked", []), sampling_params]


@pytest.fixture
def engine(monkeypatch):
    """Makes one of our actors on a base that stands in for upstream's."""

    def make(base=_Rollout, **settings):
        upstream = plain_class(vllm_engine.RolloutRayActor)
        for name in ("generate_responses", "generate", "__init__"):
            if hasattr(base, name):
                monkeypatch.setattr(upstream, name, getattr(base, name))
        cls = rollout_class(upstream_args(**settings))
        actor = cls.__new__(cls)
        actor.executor = base.executor
        actor.draws = defaultdict(Counter)
        if hasattr(base, "rewards"):
            actor.rewards = base.rewards
        return actor

    return make


async def tokenizer():
    return "tokenizer"


async def responses_of(actor, number=0, params=_Params, count=3):
    sent = Prompt("prompt", number), Label("label", "maze")
    prompt, label = ray.cloudpickle.loads(ray.cloudpickle.dumps(sent))
    fetched = tokenizer()
    responses = await actor.generate_responses(
        prompt=prompt,
        label=label,
        sampling_params=params(),
        num_samples=count,
        hf_tokenizer=Stored(fetched),
        images=["1.png"],
    )
    fetched.close()
    return responses


def asked(actor, number=0, params=_Params, count=3):
    """`count` responses to a prompt, and the sampling parameters of all requests."""
    actor.asked = []
    return asyncio.run(responses_of(actor, number, params, count)), actor.asked


@pytest.mark.parametrize("own", [None, ["###"]])
def test_remax_asks_for_one_more_response_at_temperature_zero_where_it_trains(engine, own):
    """It ends at stop strings, as all others do."""

    class Params(_Params):
        stop = own

    actor = engine(algo__advantage__estimator="remax", rollout__stop=["END", "\n\n"])
    responses, requests = asked(actor, params=Params)
    assert [response["reward"] for response in responses] == [1.0] * 3
    assert [response[OUTCOME].greedy_reward for response in responses] == [9.0] * 3
    assert [each.temperature for each in requests] == [0.7] * 3 + [0.0]
    for request in requests:
        assert request.stop == [*(own or []), "END", "\n\n"]
        assert request.include_stop_str_in_output
    assert Params.stop == own
    responses, requests = asked(actor, EVALUATION)
    assert [response[OUTCOME].greedy_reward for response in responses] == [None] * 3
    assert len(requests) == 3


def test_every_response_has_a_seed_of_its_own_that_the_runs_seed_decides(engine):
    def seeds(number, seed=42, count=3):
        return [each.seed for each in asked(engine(train__seed=seed), number, count=count)[1]]

    assert seeds(5) == seeds(5) == seeds(5, count=9)[:3]
    actor = engine(train__seed=42)
    for _ in range(2):  # as evaluations ask for the same responses again
        assert [each.seed for each in asked(actor, 5)[1]] == seeds(5)
    every = [seeds(5), seeds(6), seeds(EVALUATION), seeds(5, seed=43)]
    assert len({seed for four in every for seed in four}) == 12


def test_the_turns_of_an_agent_and_its_draws_in_a_turn_have_seeds_of_their_own(engine):
    actor = engine()
    parameters = _Params()
    for seed, tokens in ((7, [1]), (7, [1]), (7, [1, 2]), (None, [1])):
        parameters.seed = seed
        asyncio.run(actor.generate(tokens, parameters))
        assert parameters.seed == seed
    first, again, longer, unseeded = (each.seed for each in actor.asked)
    assert len({first, again, longer}) == 3
    assert unseeded is None


def test_a_model_that_sees_writes_no_images_or_videos(engine):
    class Seeing(_Rollout):
        async def __init__(self, remote_rm_url=None):
            config = SimpleNamespace(image_token_id=7, video_token_id=8, audio_token_id=None)
            self.llm = SimpleNamespace(model_config=SimpleNamespace(hf_config=config))

    async def generate():
        await actor.__init__()
        graders = asyncio.get_running_loop()._default_executor
        assert graders._max_workers == rollout.GRADING_THREADS  # few that hang do not fill it
        await actor.generate([1, 2], parameters)

    actor = engine(Seeing)
    parameters = _Params()
    parameters.logit_bias = {5: 2.0, 7: 1.0}
    asyncio.run(generate())
    assert actor.asked[0].logit_bias == {5: 2.0, 7: FORBIDDEN, 8: FORBIDDEN}


async def exit_at_once():
    sys.exit(3)


async def exit_in_threads():
    await asyncio.gather(*(asyncio.to_thread(sys.exit, 3) for _ in range(2)))


@pytest.mark.parametrize("at_start", [False, True])
@pytest.mark.parametrize("user_code", [exit_at_once, exit_in_threads])
def test_an_agent_that_ends_python_is_an_error_and_its_actor_lives(engine, user_code, at_start):
    """Else the actor's event loop ends in silence, and the run waits for ever."""

    class Ending(_Rollout):
        async def __init__(self, remote_rm_url=None):
            if at_start:
                await user_code()
            config = SimpleNamespace(hf_config=None)
            self.llm = SimpleNamespace(model_config=config, errored=False)

        async def generate_responses(self, **_):
            return await asyncio.gather(user_code())

    async def run():
        with pytest.raises(ExitCalled, match=r"SystemExit\(3\)"):
            await actor.__init__()
            await responses_of(actor)
        return "lives"

    actor = engine(Ending)
    assert asyncio.run(run()) == "lives"


def filtered(engine, rewards, number=0, filters=True, **settings):
    """The scores, by which upstream filters, of a group with these rewards."""

    class Graded(_Rollout):
        pass

    Graded.rewards = iter(rewards)
    actor = engine(Graded, algo__dynamic_filtering_enable=filters, **settings)
    return [response["scores"] for response in asked(actor, number, count=len(rewards))[0]]


# --- the order of prompts -----------------------------------------------------------------------


class _Shuffled(list):
    """A loader that draws its order."""

    def __iter__(self):
        torch.randperm(8)
        return super().__iter__()


class _Rollouts:
    """vLLM engines that grade prompt "0", "1", ... as a table says, in any order of arrival."""

    def __init__(self, monkeypatch, rewards, arrivals=0, **more):
        self.numbers = []
        draw = random.Random(arrivals)

        def wait(refs, **_):
            first = refs[draw.randrange(len(refs))]
            return [first], [ref for ref in refs if ref is not first]

        fake = SimpleNamespace(wait=wait, get=lambda refs: refs)
        monkeypatch.setattr(samples_generator, "ray", fake)
        monkeypatch.setattr(rollout.ray, "put", lambda stored: [stored])

        def respond(prompt, label, hf_tokenizer, **_):
            assert hf_tokenizer == Stored(["tokenizer"])
            self.numbers.append(prompt.number)
            response = {
                **{"observation_tokens": [1, 2], "action_ranges": [(1, 2)], "prompt": prompt.text},
                **{"label": label, "rollout_log_probs": None, OUTCOME: Outcome(prompt.number, 0)},
            }
            graded = [{"reward": reward, "scores": reward} for reward in rewards[int(prompt.text)]]
            return [response | one for one in graded]

        engine = SimpleNamespace(
            get_num_unfinished_requests=SimpleNamespace(remote=lambda: 0),
            generate_responses=SimpleNamespace(remote=respond),
        )
        args = upstream_args(
            **{"rollout__batch_size": 2, "rollout__n_samples_per_prompt": 2},
            **more,
        )
        loader = [(None, [str(i)], ["label"], [None]) for i in range(len(rewards))]
        strategy = SimpleNamespace(args=args)
        self.samples = OrderedSamples(
            strategy, loader, _Shuffled(loader[:3]), "tokenizer", [engine]
        )


def test_what_an_environment_says_is_no_part_of_a_responses_length(monkeypatch):
    """Two turns of 8 tokens with 40 of the environment between them, and one turn of 16."""
    samples = _Rollouts(monkeypatch, []).samples
    lengths = {}
    for name, turns in {"agent": [(4, 12), (52, 60)], "alone": [(4, 20)], "cut": [(4, 70)]}.items():
        response = {
            **{"observation_tokens": list(range(70)), "action_ranges": turns, "reward": 1.0},
            **{"prompt": name, "label": "", "rollout_log_probs": None, OUTCOME: Outcome(0, 0)},
        }
        sample = samples._process_response_into_experience(response, max_len=64)
        sample.rewards = torch.tensor([1.0])
        assert sample.response_length.tolist() == sample.action_mask.sum(1).tolist()
        lengths[name] = sample.response_length.item()
        apply_overlong_penalty([sample], max_new_tokens=40, overlong_buffer_len=20)
        assert sample.rewards.tolist() == [0.0 if name == "cut" else 1.0]
    assert lengths == {"agent": 16, "alone": 16, "cut": 60}


@pytest.mark.parametrize("arrivals", range(4))
def test_a_batch_is_in_the_order_in_which_its_prompts_were_drawn(monkeypatch, arrivals):
    rewards = [[number, number + 0.5] for number in range(5)]  # of two responses to each prompt
    rollouts = _Rollouts(monkeypatch, rewards, arrivals)
    random_state = torch.get_rng_state()
    for numbers in ([0, 1], [2, 3], []):  # the fifth prompt would not fill a rollout
        batch, _, consumed, exhausted = rollouts.samples.generate_samples()
        assert exhausted == (not numbers)
        prompts = [sample.prompts[0] for sample in batch]
        assert prompts == [str(number) for number in numbers for _ in range(2)]
        rewards_of_batch = [sample.rewards.item() for sample in batch]
        assert rewards_of_batch == [reward for number in numbers for reward in rewards[number]]
        assert consumed == len(numbers)
        evaluated = rollouts.samples.generate_eval_samples()
        assert [sample.prompts[0] for sample in evaluated] == ["0", "0", "1", "1", "2", "2"]
    assert torch.equal(torch.get_rng_state(), random_state)  # the order of training comes from it
    of_training = [number for number in rollouts.numbers if number < EVALUATION]
    assert of_training == list(range(4))
    evaluations = [number - EVALUATION for number in rollouts.numbers if number >= EVALUATION]
    assert evaluations == [0, 1, 2] * 3


@pytest.mark.parametrize(
    ("at_once", "generated"),
    [(2, 6), (3, 7), (4, 6)],  # of seven prompts; the third of three waits for a fourth
)
def test_no_rollout_is_short_however_many_are_generated_at_once(monkeypatch, at_once, generated):
    rollouts = _Rollouts(monkeypatch, [[0.0, 1.0]] * 7, rollout__vllm_generate_batch_size=at_once)
    lengths = []
    exhausted = False
    while not exhausted:
        batch, _, _, exhausted = rollouts.samples.generate_samples()
        lengths.append(len(batch))
    assert lengths[:3] == [4, 4, 4]
    assert not any(lengths[3:])
    assert len(rollouts.numbers) <= generated


def test_filtering_drops_groups_of_equal_rewards_whatever_they_are(monkeypatch, engine):
    assert all(map(math.isnan, filtered(engine, [0.5, 0.5])))
    assert filtered(engine, [0.5, 0.25]) == [0.5, 0.25]
    assert filtered(engine, [0.5, 0.5], number=EVALUATION) == [0.5, 0.5]
    assert filtered(engine, [0.5, 0.5], filters=False) == [0.5, 0.5]
    masks = {"js__on_bad_reward": "mask", "algo__dynamic_filtering_range": (0.3, 1)}
    assert all(map(math.isnan, filtered(engine, [0.5, None, 0.5], **masks)))
    assert all(map(math.isnan, filtered(engine, [0.5, None, 0.0], **masks)))
    assert filtered(engine, [0.5, None, 0.25], **masks) == [0.5, None, 0.25]  # upstream keeps it

    equal, varied = [0.5, 0.5], [0.5, 0.25]
    as_graded = _Rollouts(monkeypatch, [equal, varied], algo__dynamic_filtering_enable=True)
    batch, passed, _, _ = as_graded.samples.generate_samples()
    assert passed == 1  # by upstream's filter: as long as it is so, ours is needed
    for low, high in ((0, 1), (-math.inf, math.inf)):
        rollouts = _Rollouts(
            monkeypatch,
            [filtered(engine, equal), varied, varied],
            algo__dynamic_filtering_enable=True,
            algo__dynamic_filtering_range=(low, high),
        )
        batch, passed, _, _ = rollouts.samples.generate_samples()
        assert [sample.prompts[0] for sample in batch] == ["1", "1", "2", "2"]
        assert passed == pytest.approx(2 / 3)
    table = [varied, filtered(engine, equal)]
    too_few = _Rollouts(monkeypatch, table, algo__dynamic_filtering_enable=True)
    assert too_few.samples.generate_samples()[0] == []  # one passes, which fills no rollout


@pytest.mark.parametrize("resumed_after", [0, 1])
def test_a_run_ends_after_its_steps(monkeypatch, resumed_after):
    rollouts = _Rollouts(monkeypatch, [[0.0, 1.0]] * 8, js__max_steps=2)
    rollouts.samples.resume(steps=resumed_after)
    for _ in range(2 - resumed_after):
        assert len(rollouts.samples.generate_samples()[0]) == 4
    for _ in range(2):  # an episode after the other
        assert rollouts.samples.generate_samples() == ([], None, 0, True)
    assert len(rollouts.samples.generate_eval_samples()) == 6
