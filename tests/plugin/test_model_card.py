"""The card of a trained model, and its upload to a stand-in of the hub."""

import argparse
import re
import shlex
from pathlib import Path

import huggingface_hub
import pytest
import yaml
from hub import TOKEN, hub

from openrlhf_js.plugin import flags
from openrlhf_js.plugin.flags.parser import upstream_parser
from openrlhf_js.plugin.run import model_card
from openrlhf_js.plugin.trainer import pass1_interval
from openrlhf_js.plugin.upstream import BadInput
from openrlhf_js.stats import clustered_proportion

SOURCE = "sort"
WORDS = (
    *("--algo.advantage.estimator", "js_grad", "--actor.model_name_or_path", "Qwen/Qwen2.5-0.5B"),
    *("--data.prompt_dataset", "openai/gsm8k,./mine.jsonl", "--reward.remote_url", "my rewards.py"),
    *("--eval.dataset", "held_out.jsonl", "--eval.steps", "10", "--eval.n_samples_per_prompt", "2"),
    *("--logger.wandb.key", "secret", "--ckpt.load_enable", "--rollout.max_new_tokens", "64"),
)


@pytest.fixture
def parsed(tmp_path):
    """The parser, and the flat flags of a run with these and more words."""
    parser = upstream_parser()
    flags.add_flags(parser)

    def parse(*words: str) -> argparse.Namespace:
        return parser.parse_args([*WORDS, "--ckpt.output_dir", str(tmp_path / "model"), *words])

    return parser, parse


def trained(folder: Path) -> None:
    """What a run leaves in a folder: two evaluations, of eight prompts, and the end."""
    for step, means in ((0, [0.0, 0.5] * 4), (10, [1.0, 0.5] * 4)):
        metrics = {"eval_sort_pass1": sum(means) / 8, "eval_num_samples": 16.0}
        interval = pass1_interval(SOURCE, means)
        model_card.keep_evaluation(str(folder), step, {**metrics, **interval})
    model_card.keep_evaluation(str(folder), 12, {})


def test_the_card_says_what_was_trained_how_and_how_good_it_is(parsed, tmp_path):
    parser, parse = parsed
    folder = tmp_path / "model"
    model_card.keep_evaluation(str(folder), 7, {"eval_old_pass1": 1.0})  # of an earlier run
    trained(folder)
    model_card.keep_evaluation(str(folder), 60, {"eval_sort_pass1": 1.0})  # undone by a resume
    model_card.keep_evaluation(str(folder), 12, {})
    args = parse("--rollout.stop=-q")
    model_card.write_card(args, parser)
    card = huggingface_hub.ModelCard.load(folder / "README.md")
    assert card.data.base_model == "Qwen/Qwen2.5-0.5B"
    assert card.data.datasets == ["openai/gsm8k"]  # on the hub; the other is a file
    assert card.data.library_name == "transformers"
    low, high = (f"{100 * end:.1f}" for end in clustered_proportion([1.0, 0.5] * 4)[1:])
    for words in (
        "| advantage estimator | `js_grad`: weighted regression",
        "| steps | 12 of",
        f"| sort | 10 | 75.0 | {low} | {high} |",
        "| sort | 0 | 25.0 |",
        "    '--reward.remote_url=my rewards.py'",
    ):
        assert words in card.text
    for words in ("secret", "load_enable", "eval_old", "| sort | 12 |"):
        assert words not in card.text
    (command,) = re.findall(r"```bash\nopenrlhf-js train (.*?)```", card.text, re.DOTALL)
    again = vars(parser.parse_args(shlex.split(command.replace("\\\n", ""))))
    differs = {name for name, value in vars(args).items() if again[name] != value}
    assert differs == {"ckpt.load_enable", "logger.wandb.key"}
    address = "http://ada:secret@host:5000/x?token=secret"
    assert model_card.ADDRESS.sub(r"\1\2", address) == "http://host:5000/x"
    unknown = pass1_interval(SOURCE, [float("nan"), 1.0])
    assert unknown == {}
    assert pass1_interval(SOURCE, [-3.0, -1.0])["eval_sort_pass1_low"] < -3


def test_a_model_is_uploaded_and_what_would_fail_then_fails_before(
    parsed, tmp_path, monkeypatch, capsys
):
    parser, parse = parsed
    folder = tmp_path / "model"
    trained(folder)
    weights = bytes(range(256)) * 40
    (folder / "model.safetensors").write_bytes(weights)
    for private in ("train.log", "openrlhf_js.yaml", ".env", "batch_0.npz"):
        (folder / private).write_text("private")
    (folder / "checkpoints").mkdir()
    (folder / "checkpoints" / "x.safetensors").write_bytes(b"large")
    args = parse("--push_to_hub", "--hub_model_id", "ada/sorter", "--hub_private_repo")
    flat = vars(args)
    assert list(model_card.hub_problems(flat)) == []
    model_card.write_card(args, parser)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    with hub() as server:
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", server.address)
        for token, name in (("hf_other", "ada/sorter"), (TOKEN, "eve/sorter"), (TOKEN, "ada/--")):
            monkeypatch.setenv("HF_TOKEN", token)
            with pytest.raises(BadInput, match=f"cannot write to {name} on http"):
                model_card.open_repository(flat | {"js.hub_model_id": name})
        assert server.repositories == {}

        model_card.open_repository(flat)
        assert server.repositories["ada/sorter"]["visibility"] == "private"
        assert model_card.upload(flat) == 0
        kept = ("README.md", "evaluations.json", "model.safetensors")
        assert server.files == {name: (folder / name).read_bytes() for name in kept}
        header = yaml.safe_load(server.files["README.md"].split(b"---")[1])
        assert header["base_model"] == "Qwen/Qwen2.5-0.5B"
        assert b"# ada/sorter" in server.files["README.md"]

        server.repositories["ada/sorter"]["visibility"] = "public"
        with pytest.raises(BadInput, match="is there already, and public"):
            model_card.open_repository(flat)
        server.broken = True
        assert model_card.upload(flat) == model_card.NOT_DONE
        said = capsys.readouterr().err
        assert "not uploaded: " in said
        assert f"hf upload ada/sorter {folder} . --private --include '*.safetensors'" in said
        (folder / "model.safetensors").rename(folder / "adapter_model.bin")
        server.broken = False
        assert model_card.upload(flat) == 0  # of LoRA under ZeRO 3
        assert "adapter_model.bin" in server.files
        (folder / "adapter_model.bin").unlink()
        (folder / "evaluations.json").unlink()  # as where nodes share no disk
        model_card.write_card(args, parser)
        assert model_card.upload(flat) == model_card.NOT_DONE
        said = capsys.readouterr()
        assert f"there is no evaluations.json in {folder} on this node; with several" in said.out
        assert f"not uploaded: there are no weights in {folder} on this node; with" in said.err
        trained(folder)
        (folder / "README.md").unlink()
        (folder / "README.md").mkdir()  # cannot be written
        model_card.write_card(args, parser)
        assert "no model card: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--push_to_hub"], "needs --js.hub_model_id USER/NAME, got None"),
        (["--push_to_hub", "--hub_model_id", "sorter"], "USER/NAME, got sorter"),
        (["--hub_model_id", "ada/sorter"], "do nothing without --js.push_to_hub"),
    ],
)
def test_flags_of_an_upload_that_cannot_be(parsed, words, problem):
    (found,) = model_card.hub_problems(vars(parsed[1](*words)))
    assert problem in found
