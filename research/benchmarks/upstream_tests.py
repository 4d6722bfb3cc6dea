"""Runs TRL's, verl's and SkyRL's own tests, first with theirs and then with ours in their place.

    python research/benchmarks/upstream_tests.py trl --source CLONE_OF_TRL
    python research/benchmarks/upstream_tests.py verl
    .venv/alone/skyrl/bin/python research/benchmarks/upstream_tests.py skyrl --source CLONE_OF_SKYRL

It prints how many tests pass with theirs, how many of these pass with ours, and why the others
differ. Tests that do not pass with theirs on this machine (a GPU, vLLM, a model of the hub) say
nothing about ours and are left out.

TRL: `ShrinkageGRPOTrainer` and `ShrinkageRLOOTrainer` with `js_grad` stand for TRL's trainers, and
the settings that they need are the defaults. TRL's source package has no tests, so give a clone of
the installed version. Its tests load tiny models of the hub; models of the same architectures with
random weights are made instead, in a folder of the same names from which the tests run.

verl: its source package is downloaded; our `rloo` stands for its function, and all of ours are
registered. Its tests of advantages compare its own functions with each other.

SkyRL: `ShrinkageTrainer` stands for its trainer, and our `rloo` for its function. Give a clone;
`bash scripts/trainers.sh skyrl` makes the environment.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

TESTS = {
    "trl": ("tests/test_grpo_trainer.py", "tests/test_rloo_trainer.py"),
    "verl": (
        "tests/trainer/ppo/test_core_algos_on_cpu.py",
        "tests/trainer/ppo/test_reinforce_pp_multiturn_on_cpu.py",
    ),
    "skyrl": (
        "tests/train/test_trainer.py",
        "tests/backends/skyrl_train/utils/test_ppo_utils.py",
    ),
}
SWAP = "UPSTREAM_TESTS_SWAP"  # the package whose code this file replaces, as a plugin of pytest
HUB = "trl-internal-testing"
# Of hub models that TRL's tests load: architecture, and the chat template that TRL ships for it.
TINY_MODELS = {
    "tiny-Qwen2ForCausalLM-2.5": ("Qwen2ForCausalLM", "qwen2_5"),
    "tiny-Qwen2ForSequenceClassification-2.5": ("Qwen2ForSequenceClassification", "qwen2_5"),
    "tiny-Qwen3ForCausalLM": ("Qwen3ForCausalLM", "qwen3"),
    "tiny-Qwen3ForSequenceClassification": ("Qwen3ForSequenceClassification", "qwen3"),
    "tiny-Qwen3MoeForCausalLM": ("Qwen3MoeForCausalLM", "qwen3"),
    "tiny-LlamaForCausalLM-3.2": ("LlamaForCausalLM", "llama3_2"),
    "tiny-LlamaForSequenceClassification-3.2": ("LlamaForSequenceClassification", "llama3_2"),
    "tiny-MistralForCausalLM-0.2": ("MistralForCausalLM", "llama3"),
}
SIZES = {
    "hidden_size": 8,
    "intermediate_size": 32,
    "moe_intermediate_size": 16,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 2,
}
TRAIN_ROWS, TEST_ROWS = 17, 2  # as in the data set `zen`


class Outcome(NamedTuple):
    """What became of a test."""

    passed: bool
    reason: str
    """Last line of its error; empty if it passed."""


def main(arguments: list[str] | None = None) -> None:
    """Runs both and prints the comparison."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("package", choices=TESTS)
    parser.add_argument("--source", type=Path, help="a folder with the package's source and tests")
    parser.add_argument("--select", help="pytest's -k, to run a part")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = options.source or download(options.package, folder)
        missing = [file for file in TESTS[options.package] if not (source / file).is_file()]
        if missing:
            parser.error(f"{source} has no {missing[0]}: give a clone of the package as --source")
        # away from the source, whose package would come before the installed one
        shutil.copytree(source / "tests", folder / "tests")
        if options.package == "trl":
            make_stand_ins(folder)
        theirs = run_tests(options.package, folder, ours=False, select=options.select)
        ours = run_tests(options.package, folder, ours=True, select=options.select)
    print(comparison(options.package, theirs, ours))


def download(package: str, folder: Path) -> Path:
    """The unpacked source package of the installed version."""
    pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-build-isolation"]
    wanted = f"{package}=={version(package)}"
    subprocess.run([*pip, "--no-binary", package, "--dest", folder, wanted], check=True)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    return folder / archive.name.removesuffix(".tar.gz")


def run_tests(package: str, folder: Path, *, ours: bool, select: str | None) -> dict[str, Outcome]:
    """The outcome of each test by name, run from the folder of the tests and stand-ins."""
    results = folder / ("ours.xml" if ours else "theirs.xml")
    plugin = Path(__file__).resolve()
    paths = [str(plugin.parent), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        SWAP: package if ours else "",
        "HF_HUB_OFFLINE": "1",
        "TRL_EXPERIMENTAL_SILENCE": "1",
        "ACCELERATE_USE_CPU": "1",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-o", "addopts=", "-p", plugin.stem]
    command += ["-p", "no:cacheprovider", "-p", "no:xdist", f"--junitxml={results}"]
    command += ["-k", select] if select else []
    subprocess.run([*command, *TESTS[package]], cwd=folder, env=environment, stdout=sys.stderr)
    return read_results(results)


def read_results(file: Path) -> dict[str, Outcome]:
    """The outcomes of the tests that were not skipped, from pytest's XML."""
    outcomes = {}
    for case in ElementTree.parse(file).iter("testcase"):
        if case.find("skipped") is not None:
            continue
        failure = case.find("failure")
        failure = case.find("error") if failure is None else failure
        message = "" if failure is None else failure.get("message", "")
        lines = message.strip().splitlines() or [""]
        name = f"{case.get('classname', '').rsplit('.', 1)[-1]}::{case.get('name')}"
        outcomes[name] = Outcome(passed=failure is None, reason=lines[0])
    return outcomes


def comparison(package: str, theirs: dict[str, Outcome], ours: dict[str, Outcome]) -> str:
    """The report, with the commonest reasons for which tests say nothing."""
    passed = [name for name, outcome in theirs.items() if outcome.passed]
    left_out = Outcome(passed=False, reason="did not run")
    differ = {name: ours.get(name, left_out) for name in passed}
    differ = {name: outcome.reason for name, outcome in differ.items() if not outcome.passed}
    lines = [
        f"{package} {version(package)}: {len(theirs)} tests ran, {len(passed)} pass with theirs, "
        f"{len(passed) - len(differ)} of these pass with ours"
    ]
    lines += [f"  {name}: {reason}" for name, reason in differ.items()]
    reasons = Counter(outcome.reason[:100] for outcome in theirs.values() if not outcome.passed)
    lines += [f"left out, {count}: {reason}" for reason, count in reasons.most_common(5)]
    return "\n".join(lines)


# --- stand-ins for the hub ------------------------------------------------------------------------


def make_stand_ins(folder: Path) -> None:
    """Models and data sets under the names that TRL's tests load from the hub."""
    for name, (architecture, template) in TINY_MODELS.items():
        make_model(folder / HUB / name, architecture, template)
    make_data_set(folder / HUB / "zen")


def make_model(folder: Path, architecture: str, template: str) -> None:
    """A model of random weights with a tokenizer of bytes."""
    import torch
    import transformers

    tokenizer = make_tokenizer(template)
    model_class = getattr(transformers, architecture)
    torch.manual_seed(0)
    config = model_class.config_class(
        **SIZES,
        vocab_size=len(tokenizer),
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        num_labels=1,
        tie_word_embeddings=False,
    )
    model_class(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def make_tokenizer(template: str) -> Any:
    """Bytes as tokens, with one of the chat templates that TRL ships."""
    import trl
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokens = special + sorted(pre_tokenizers.ByteLevel.alphabet())
    letters = Tokenizer(models.BPE({token: place for place, token in enumerate(tokens)}, []))
    letters.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    letters.decoder = decoders.ByteLevel()
    letters.add_special_tokens([AddedToken(token, special=True) for token in special])
    file = Path(trl.__file__).parent / "chat_templates" / f"{template}.jinja"
    return PreTrainedTokenizerFast(
        tokenizer_object=letters,
        pad_token="<|endoftext|>",
        eos_token="<|im_end|>",
        chat_template=file.read_text(encoding="utf-8"),
    )


def make_data_set(folder: Path) -> None:
    """Prompts, as texts and as messages, each with a train and a test split."""
    folder.mkdir(parents=True)
    card = ["---", "configs:"]
    for name in ("standard_prompt_only", "conversational_prompt_only"):
        card += [f"- config_name: {name}", "  data_files:"]
        for split, rows in (("train", TRAIN_ROWS), ("test", TEST_ROWS)):
            card += [f"  - split: {split}", f"    path: {name}-{split}.jsonl"]
            with (folder / f"{name}-{split}.jsonl").open("w") as file:
                for row in range(rows):
                    text = f"{split} {row} is better than"
                    messages = [{"role": "user", "content": text}]
                    prompt = text if name.startswith("standard") else messages
                    file.write(json.dumps({"prompt": prompt}) + "\n")
    (folder / "README.md").write_text("\n".join([*card, "---", ""]))


# --- what pytest sees of this file, as a plugin ---------------------------------------------------


def pytest_configure() -> None:
    """Puts ours in the place of the package's own, if the environment says so."""
    swap = {"trl": swap_trl, "verl": swap_verl, "skyrl": swap_skyrl, "": lambda: None}
    swap[os.environ.get(SWAP, "")]()


def swap_trl() -> None:
    """Our trainers under TRL's names, and settings with the defaults that they need."""
    import trl
    import trl.trainer.grpo_config
    import trl.trainer.grpo_trainer

    from openrlhf_js.trainers.trl import ShrinkageGRPOTrainer, ShrinkageRLOOTrainer

    @dataclasses.dataclass
    class GRPOConfig(trl.GRPOConfig):
        scale_rewards: str | bool = "none"

    # checkpoints hold the settings under the name of TRL's class
    GRPOConfig.__module__, GRPOConfig.__qualname__ = trl.GRPOConfig.__module__, "GRPOConfig"
    for module in (trl, trl.trainer.grpo_config, trl.trainer.grpo_trainer):
        module.GRPOConfig = GRPOConfig
    ShrinkageGRPOTrainer.config_class = GRPOConfig
    trl.GRPOTrainer = ShrinkageGRPOTrainer
    trl.RLOOTrainer = ShrinkageRLOOTrainer


def swap_verl() -> None:
    """Our `rloo` under the name of verl's function, and all of ours registered."""
    from verl.trainer.ppo import core_algos

    from openrlhf_js.trainers.verl import OutcomeAdvantage

    def rloo(**inputs: Any) -> Any:
        return OutcomeAdvantage("rloo")(**inputs)

    core_algos.compute_rloo_outcome_advantage = rloo


def swap_skyrl() -> None:
    """Our trainer under the name of SkyRL's, and our `rloo` under that of its function."""
    import skyrl.train.trainer
    import torch
    from skyrl.backends.skyrl_train.utils import ppo_utils

    from openrlhf_js.estimators import advantage
    from openrlhf_js.trainers.skyrl import ShrinkageTrainer

    def rloo(token_level_rewards: Any, response_mask: Any, index: Any, **_: Any) -> Any:
        of_responses = advantage("rloo", token_level_rewards.sum(1), groups=list(index))
        of_tokens = torch.as_tensor(of_responses)[:, None] * response_mask
        return of_tokens, of_tokens

    skyrl.train.trainer.RayPPOTrainer = ShrinkageTrainer
    ppo_utils.compute_rloo_outcome_advantage = rloo


if __name__ == "__main__":
    main()
