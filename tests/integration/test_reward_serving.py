"""The same scores everywhere: in this process, served, and by OpenRLHF's own code in float32.

OpenRLHF scores a text in three ways, which agree on a response that ended by itself and fits:

- in training a reward model (`RewardDataset`): EOS is added where it is missing, and put in the
  place of the last token where the text was cut;
- in RLHF with the model in Ray (`RewardModelActor`): the policy's own token ids, as they are;
- in its server (`serve_rm`): the text tokenized as it is, cut without an EOS.

Ours is the first, the one that the model was trained with.
"""

import contextlib
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import httpx
import pytest
import torch
from small_models import LONG, TEXTS, save_reward_model

from openrlhf_js.reward_model.checkpoint import checkpoint_problems, tensor_shapes
from openrlhf_js.reward_model.model import RewardModel

pytestmark = pytest.mark.integration

MAX_LEN = 20
MEAN = 0.75
STD = 1.25
ENDED = [text for text in TEXTS if text.endswith("<eos>")]
NOT_ENDED = [text for text in TEXTS if not text.rstrip("\n").endswith("<eos>")]
TOLERANCE = 1e-3


@pytest.fixture(scope="module", autouse=True)
def _device() -> None:
    from openrlhf_js.plugin.run.device import prepare_device

    prepare_device("cpu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A reward model that OpenRLHF has initialised and saved, as its training does at its end."""
    from openrlhf.models import get_llm_for_sequence_regression
    from openrlhf.utils import get_tokenizer
    from openrlhf.utils.deepspeed import DeepspeedStrategy

    base = save_reward_model(tmp_path_factory.mktemp("base"), tensors={"score.weight": None})
    model = get_llm_for_sequence_regression(
        str(base), "reward", attn_implementation="sdpa", init_value_head=True
    )
    tokenizer = get_tokenizer(str(base), model, "left", None)
    with torch.no_grad():
        model.score.weight.normal_()  # scores that differ
    model.config.mean, model.config.std = MEAN, STD  # as RewardModelTrainer.evaluate leaves them
    model.config.value_head_prefix = "score"
    folder = tmp_path_factory.mktemp("trained") / "model"
    stage = SimpleNamespace(zero_stage=2, tensor_parallel_size=1)
    strategy = SimpleNamespace(
        args=SimpleNamespace(ds=stage), is_rank_0=lambda: True, _unwrap_model=lambda model: model
    )
    with pytest.MonkeyPatch.context() as patch:
        module = sys.modules["openrlhf.utils.deepspeed.deepspeed"]
        patch.setattr(module, "torch_dist_barrier_and_cuda_sync", lambda: None)
        DeepspeedStrategy.save_model(strategy, model, tokenizer, str(folder))
    return folder


@pytest.fixture(scope="module")
def theirs(folder: Path) -> Any:
    """OpenRLHF's reward model, as RewardModelActor loads it, in float32."""
    from openrlhf.models import get_llm_for_sequence_regression

    return (
        get_llm_for_sequence_regression(str(folder), "reward", attn_implementation="sdpa")
        .float()
        .eval()
    )


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Any:
    from openrlhf.utils import get_tokenizer

    return get_tokenizer(str(folder), None, "left", None)


def scores_in_training(theirs: Any, tokenizer: Any, texts: list[str]) -> list[float]:
    """By RewardDataset and its batches, as RewardModelTrainer.evaluate computes them."""
    from openrlhf.datasets import RewardDataset

    dataset = RewardDataset.__new__(RewardDataset)
    dataset.tokenizer = tokenizer
    dataset.max_length = MAX_LEN
    dataset.is_dpo = False
    dataset.prompts = [""] * len(texts)
    dataset.extras = [0] * len(texts)
    dataset.chosens = dataset.rejects = texts
    ids, mask, *_ = dataset.collate_fn([dataset[number] for number in range(len(texts))])
    with torch.no_grad():
        return theirs(ids.squeeze(1), mask.squeeze(1)).tolist()


def scores_of_the_actor(theirs: Any, tokenizer: Any, texts: list[str]) -> list[float]:
    """By RewardModelActor.forward, on the token ids that a policy would have made."""
    from openrlhf.trainer.ray.launcher import RewardModelActor

    actor = SimpleNamespace(model=theirs, strategy=SimpleNamespace(ring_attn_group=None))
    forward = RewardModelActor.__ray_metadata__.modified_class.forward
    found = []
    for text in texts:
        made = tokenizer(text, return_tensors="pt", add_special_tokens=False)
        found += forward(actor, made["input_ids"], made["attention_mask"]).tolist()
    return found


def scores_of_their_server(theirs: Any, tokenizer: Any, texts: list[str]) -> list[float]:
    from openrlhf.cli.serve_rm import RewardModelProxy

    proxy = RewardModelProxy.__new__(RewardModelProxy)
    proxy.reward_model = theirs
    proxy.tokenizer = tokenizer
    proxy.max_length = MAX_LEN
    proxy.batch_size = None
    return proxy.get_reward(texts)


class Server(NamedTuple):
    process: subprocess.Popen
    port: int
    said: str  # before it began to serve

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/get_reward"


@contextlib.contextmanager
def serving(folder: Path, *flags: str) -> Iterator[Server]:
    """Serves until the end of the block, and must then end with status 0."""
    command = [sys.executable, "-m", "openrlhf_js.cli.rm", "serve", "--port=0", "--device=cpu"]
    command += ["--reward.model_name_or_path", str(folder), *flags]
    log = folder.parent / "server.log"
    with log.open("w") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
    assert process.stdout
    try:
        said = ""
        while not (found := re.search(r"serving on http://127.0.0.1:(\d+)/get_reward\n", said)):
            line = process.stdout.readline()
            assert line, f"no server: {said}{log.read_text()}"
            said += line
        yield Server(process, int(found[1]), said)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_what_openrlhf_saves_has_the_layout_of_the_tests_own_models(folder, tmp_path):
    own = save_reward_model(tmp_path)
    assert tensor_shapes(folder) == tensor_shapes(own)
    said, wanted = (json.loads((each / "config.json").read_text()) for each in (folder, own))
    for name in ("architectures", "model_type", "value_head_prefix", "normalize_reward"):
        assert said[name] == wanted[name]
    assert (said["mean"], said["std"]) == (MEAN, STD)
    assert checkpoint_problems(folder, normalize=True) == []


def test_in_process_served_and_in_training(folder: Path, theirs: Any, tokenizer: Any) -> None:
    texts = [*TEXTS, LONG, LONG + "<eos>", *TEXTS]
    expected = scores_in_training(theirs, tokenizer, texts)
    assert max(expected) - min(expected) > 100 * TOLERANCE
    ours = RewardModel.load(folder, MAX_LEN, dtype="float32")
    assert ours.score(texts) == pytest.approx(expected, abs=TOLERANCE)
    scaled = [(score - MEAN) / STD for score in expected]
    flags = ("--ds.param_dtype", "float32", "--data.max_len", str(MAX_LEN), "--batch_size", "5")
    with serving(folder, *flags, "--reward.normalize_enable") as server:
        together = httpx.post(server.url, json={"query": texts}, timeout=60).json()
        assert together["rewards"] == pytest.approx(scaled, abs=TOLERANCE)
        assert together["scores"] == together["rewards"]
        for text, score in zip(texts, scaled, strict=True):
            alone = httpx.post(server.url, json={"query": [text]}, timeout=60).json()
            assert alone["rewards"] == pytest.approx([score], abs=TOLERANCE)
        assert '"normalized": true' in server.said
        health = httpx.get(server.url.replace("get_reward", "health")).json()
        assert (health["normalized"], health["mean"], health["std"]) == (True, MEAN, STD)


def test_the_reward_model_in_ray_agrees_on_responses_that_ended(folder, theirs, tokenizer):
    ours = RewardModel.load(folder, MAX_LEN, dtype="float32")
    actor = scores_of_the_actor(theirs, tokenizer, ENDED)
    assert ours.score(ENDED) == pytest.approx(actor, abs=TOLERANCE)
    texts = [text for text in NOT_ENDED if text]
    actor = scores_of_the_actor(theirs, tokenizer, texts)
    differences = [abs(a - b) for a, b in zip(ours.score(texts), actor, strict=True)]
    assert min(differences) > TOLERANCE  # it reads the reward at the last token, whatever it is


def test_openrlhfs_server_agrees_on_texts_that_end_with_eos_and_fit(folder, theirs, tokenizer):
    ours = RewardModel.load(folder, MAX_LEN, dtype="float32")
    server = scores_of_their_server(theirs, tokenizer, ENDED)
    assert ours.score(ENDED) == pytest.approx(server, abs=TOLERANCE)
    texts = [*(text for text in NOT_ENDED if text), LONG, LONG + "<eos>"]
    server = scores_of_their_server(theirs, tokenizer, texts)
    differences = [abs(a - b) for a, b in zip(ours.score(texts), server, strict=True)]
    assert min(differences) > TOLERANCE  # no EOS, where training had one
