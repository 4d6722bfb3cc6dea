"""TRL as people run it: checkpoints, environments, LoRA, evaluation, and what is refused."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from trl_kit import M, make, sevens

from openrlhf_js.estimators import LiveEstimator

PROMPTS_IN_BATCH = 4  # 3 batches in an epoch of 14 prompts, and 2 prompts left over
STEPS = 7


def run(folder: Path, resume: Path | None = None, **settings: Any) -> Any:
    """A trained trainer of `STEPS` steps, with a checkpoint after each unless it was resumed."""
    saving = {} if resume else {"save_strategy": "steps", "save_steps": 1}
    sizes = {"per_device_train_batch_size": PROMPTS_IN_BATCH * M, "max_steps": STEPS}
    trainer = make(folder, "GRPO", sevens, **sizes, **saving, **settings)
    trainer.train(resume_from_checkpoint=resume and str(resume))
    return trainer


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A run that was not interrupted, and its folder."""
    folder = tmp_path_factory.mktemp("whole")
    return folder, run(folder)


@pytest.mark.parametrize("step", [2, 4])
def test_a_resumed_run_has_the_same_digits(whole: tuple[Path, Any], step: int) -> None:
    """From the first epoch, and from the second, whose order of prompts is another."""
    folder, uninterrupted = whole
    resumed = run(folder, folder / f"checkpoint-{step}")
    for found, expected in zip(resumed.seen, uninterrupted.seen[step:], strict=True):
        assert torch.equal(found, expected)
    pairs = zip(resumed.model.parameters(), uninterrupted.model.parameters(), strict=True)
    assert all(torch.equal(*pair) for pair in pairs)
    state = resumed.estimator.state_dict()
    for name, value in uninterrupted.estimator.state_dict().items():
        torch.testing.assert_close(state[name], value, rtol=0, atol=0)


def test_a_checkpoint_without_a_fitting_memory_is_a_warning(
    whole: tuple[Path, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As one of TRL alone, or after a change of the loss, by which the weights' unit changes."""
    folder, _ = whole
    trainer = make(tmp_path, "GRPO", sevens)
    file = folder / "checkpoint-3" / "openrlhf_js.pt"
    trainer._load_memory(file)
    assert len(trainer.estimator.memory.table) == 3 * PROMPTS_IN_BATCH
    assert "holds no memory" not in caplog.text
    for name, loss, path in (
        ("js_grad", "dapo", file.with_name("missing.pt")),
        ("js_grad", "grpo", file),
        ("dbb", "dapo", file),
    ):
        caplog.clear()
        trainer.estimator = LiveEstimator(name)
        trainer.loss_type = loss
        trainer._load_memory(path)
        assert f"holds no memory of {name} under this loss_type" in caplog.text
        assert len(trainer.estimator.memory.table) == 0


def test_accumulation_iterations_lora_and_evaluation(tmp_path: Path) -> None:
    """Each batch is estimated and learned once, though it serves four passes; the adapter is the
    policy, whose log-probabilities weigh; evaluation neither logs our figures nor is remembered."""
    peft = pytest.importorskip("peft")
    trainer = make(
        tmp_path,
        "GRPO",
        sevens,
        sevens,
        reward_weights=[1.0, 2.0],
        loss_type="dr_grpo",
        peft_config=peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"]),
        per_device_train_batch_size=8,
        gradient_accumulation_steps=2,
        num_iterations=2,
        max_steps=6,
        logging_steps=1,
        eval_strategy="steps",
        eval_steps=1,
        num_generations_eval=1,
    )
    before = {name: value.clone() for name, value in trainer.model.named_parameters()}
    in_loss: list[torch.Tensor] = []
    compute_loss = trainer._compute_loss

    def noting(model: Any, inputs: Any) -> Any:
        if model.training:
            in_loss.append(inputs["advantages"])
        return compute_loss(model, inputs)

    trainer._compute_loss = noting
    trainer.train()

    live = LiveEstimator("js_grad")
    assert len(trainer.batches) == 3
    for number, (batch, norms) in enumerate(zip(trainer.batches, trainer.norms, strict=True)):
        assert batch.rewards.shape == (4, M)
        torch.testing.assert_close(
            batch.squared_score_norms, norms.view(4, M), rtol=1e-4, atol=1e-6
        )
        led = live.batch(
            batch.rewards, squared_score_norms=batch.squared_score_norms, keys=batch.keys
        )
        expected = live.estimate(led).advantages.flatten().float()
        live.learn(led)
        passes = in_loss[4 * number : 4 * number + 4]
        for both_halves in (passes[:2], passes[2:]):
            torch.testing.assert_close(torch.cat(both_halves).sort().values, expected.sort().values)
    changed = {
        name for name, value in trainer.model.named_parameters() if (value != before[name]).any()
    }
    assert changed and all("lora_" in name for name in changed)
    evaluations = [row for row in trainer.state.log_history if "eval_reward" in row]
    assert len(evaluations) == 6
    assert not any("js/" in name for row in evaluations for name in row)


CALL = '<tool_call>\n{{"name": "guess", "arguments": {{"number": {}}}}}\n</tool_call><|im_end|>'


class Guessing:
    """An environment that owns its reward: how near the last guess came to a hidden number."""

    def reset(self, **row: Any) -> str:
        self.last = 0
        return " Between 0 and 9."

    def guess(self, number: int) -> str:
        """Tries a number.

        Args:
            number: The guess.

        Returns:
            Whether it is too low.
        """
        self.last = number
        return "too low" if number < 7 else "right or too high, by a number of words"

    def get_reward(self) -> float:
        return 1 - abs(self.last - 7) / 10


def qwen3_tokenizer() -> Any:
    """Bytes as tokens, with Qwen 3's chat template as TRL ships it."""
    import trl
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    special = ["<pad>", "<|im_start|>", "<|im_end|>"]
    vocabulary = {token: number for number, token in enumerate(special + alphabet)}
    letters = Tokenizer(models.BPE(vocabulary, merges=[]))
    letters.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    letters.decoder = decoders.ByteLevel()
    letters.add_special_tokens([AddedToken(token, special=True) for token in special])
    template = Path(trl.__file__).parent / "chat_templates" / "qwen3.jinja"
    return PreTrainedTokenizerFast(
        tokenizer_object=letters,
        pad_token="<pad>",
        eos_token="<|im_end|>",
        chat_template=template.read_text(),
        padding_side="left",
    )


def test_an_environment_owns_the_reward_and_its_words_are_no_part_of_a_response(
    tmp_path: Path,
) -> None:
    """Every second response calls the tool before it answers. TRL's default group is four."""
    tokenizer = qwen3_tokenizer()
    trainer = make(
        tmp_path,
        "GRPO",
        environment_factory=Guessing,
        tokenizer=tokenizer,
        prompts=[[{"role": "user", "content": f"Guess number {number}."}] for number in range(8)],
        per_device_train_batch_size=8,
        max_completion_length=400,
        max_steps=2,
    )
    turns: Iterator[list[str]] = iter(
        2
        * [
            [CALL.format(2), "5<|im_end|>", CALL.format(9), "No.<|im_end|>"] * 2,
            ["Ok<|im_end|>"] * 4,
        ]
    )

    def written(prompt_ids: Any, *_: Any, **__: Any) -> tuple[list[list[int]], None]:
        turn = next(turns)
        assert len(turn) == len(prompt_ids)
        return [tokenizer(text)["input_ids"] for text in turn], None

    trainer._generate_single_turn = written
    trainer.train()
    first, second = trainer.batches
    rewards = torch.tensor([[0.5, 0.3, 0.8, 0.3]] * 2)
    torch.testing.assert_close(first.rewards.float(), rewards)
    call = len(tokenizer(CALL.format(2))["input_ids"]) + len("Ok") + 1
    assert first.lengths.tolist() == [[call, len("5") + 1, call, len("No.") + 1]] * 2
    for batch, norms in zip(trainer.batches, trainer.norms, strict=True):
        torch.testing.assert_close(
            batch.squared_score_norms, norms.view(2, M), rtol=1e-4, atol=1e-6
        )
    weights = first.squared_score_norms
    live = LiveEstimator("js_grad")
    batch = live.batch(rewards, squared_score_norms=weights, keys=first.keys)
    expected = live.estimate(batch).advantages.float()
    torch.testing.assert_close(trainer.seen[0], expected.flatten())
    assert second.past is not None


def test_the_fields_of_a_rollout_do_not_change_its_prompt(tmp_path: Path) -> None:
    """TRL writes them into the rows that a prompt is known by."""
    prompts = ["sort(1)=", "sort(2)="]
    counts: list[int] = []

    def rollout(texts: list[str], trainer: Any) -> dict[str, Any]:
        counts.append(len(counts))
        ids = [[3, 4, 5]] * len(texts)
        return {
            "prompt_ids": ids,
            "completion_ids": ids,
            "logprobs": None,
            "score": [float(place % 3) for place in range(len(texts))],
            "visit": counts[-1],
        }

    def score(score: list[float], **_: Any) -> list[float]:
        return score

    with pytest.warns(UserWarning, match="You are using 'rollout_func'"):
        trainer = make(
            tmp_path,
            "GRPO",
            score,
            rollout_func=rollout,
            prompts=prompts,
            per_device_train_batch_size=2 * M,
            max_steps=3,
        )
    trainer.train()
    assert len(counts) == 3
    assert len(trainer.estimator.memory.table) == 2


@pytest.mark.parametrize("kind", ["GRPO", "RLOO"])
def test_one_response_to_each_prompt(tmp_path: Path, kind: str) -> None:
    """As the page has it: the setting is changed after TRL has checked it."""
    trainer = make(
        tmp_path,
        kind,
        sevens,
        responses=1,
        per_device_train_batch_size=8,
        max_steps=3,
    )
    trainer.train()
    live = LiveEstimator("js_grad")
    for batch, norms, found in zip(trainer.batches, trainer.norms, trainer.seen, strict=True):
        led = live.batch(batch.rewards, squared_score_norms=norms[:, None], keys=batch.keys)
        assert batch.rewards.shape == (8, 1)
        expected = live.estimate(led).advantages.flatten().float()
        live.learn(led)
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)
    assert found.abs().max() > 0.01
    if kind == "RLOO":
        with pytest.raises(ValueError, match="RLOO trainer drops its KL penalty with one response"):
            make(tmp_path, kind, sevens, responses=1, beta=0.1)


def test_settings_are_refused_before_a_model_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import trl

    from openrlhf_js.trainers.trl import ShrinkageGRPOTrainer, ShrinkageRLOOTrainer

    for module in ("grpo_trainer", "rloo_trainer"):
        loader = f"trl.trainer.{module}.create_model_from_path"
        monkeypatch.setattr(loader, lambda *_, **__: pytest.fail("a model was loaded"))
    quiet = {"report_to": [], "use_cpu": True, "bf16": False}
    grpo = trl.GRPOConfig(str(tmp_path), scale_rewards="none", **quiet)
    two = trl.GRPOConfig(
        str(tmp_path), scale_rewards="none", per_device_train_batch_size=16, **quiet
    )
    rloo = trl.RLOOConfig(str(tmp_path), normalize_advantages=True, **quiet)
    sums = trl.GRPOConfig(
        str(tmp_path),
        scale_rewards=False,
        multi_objective_aggregation="normalize_then_sum",
        **quiet,
    )
    for trainer, config, estimator, message in (
        (ShrinkageGRPOTrainer, sums, "js", "set multi_objective_aggregation='sum_then_normalize'"),
        (ShrinkageRLOOTrainer, rloo, "js", "set normalize_advantages=False"),
        (ShrinkageGRPOTrainer, grpo, "remax", "TRL draws no greedy responses"),
        (ShrinkageGRPOTrainer, two, "js_fixed", "js_fixed needs shrinkage between 0"),
        (ShrinkageGRPOTrainer, grpo, "bloo", "bloo needs at least 2 prompts in a batch, got 1"),
        (ShrinkageGRPOTrainer, grpo, "jsgrad", "did you mean 'js_grad'"),
    ):
        with pytest.raises(ValueError, match=message):
            trainer("no-model", sevens, config, estimator=estimator)


def test_an_infinite_reward_is_refused_with_the_way_to_mask_it(tmp_path: Path) -> None:
    def infinite(completions: list[str], **_: Any) -> list[float]:
        return [float("inf")] + [0.0] * (len(completions) - 1)

    trainer = make(tmp_path, "GRPO", sevens, infinite)
    with pytest.raises(
        ValueError, match=r"function infinite returned an infinite .* or None to le"
    ):
        trainer.train()
