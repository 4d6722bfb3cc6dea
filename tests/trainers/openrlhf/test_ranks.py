"""On real DeepSpeed: the gradient variance, and what trains, is sent and is saved with LoRA."""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import kit
import pytest

pytestmark = pytest.mark.integration

MATRICES = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
LAYERS, LAYER = 2, 16 * 16 + 2 * 8 * 16 + 16 * 16 + 3 * 16 * 24  # elements of the matrices


@pytest.fixture(scope="module")
def logs(tmp_path_factory) -> list[str]:
    """What the ranks of all cases print: one start, since a start is what takes the time."""
    folder = tmp_path_factory.mktemp("ranks")
    kit.save_policy(folder / "policy")  # for its tokenizer
    kit.noisy(kit.qwen(vocab_size=30)).save_pretrained(folder / "policy")
    more = {"PYTHONPATH": str(Path(kit.__file__).parent)}  # of the file that is run
    command = [sys.executable, Path(__file__).with_name("ranks.py"), folder]
    process = subprocess.Popen(command, start_new_session=True, env={**os.environ, **more})
    try:
        status = process.wait(500)
    finally:
        with suppress(ProcessLookupError):  # all have ended
            os.killpg(process.pid, signal.SIGKILL)
    found = [path.read_text(errors="replace") for path in sorted(folder.glob("rank *"))]
    assert status == 0, "\n".join(log[-1500:] for log in found)
    return found


def cases(log: str, kind: str) -> list[dict]:
    return [json.loads(x[len(kind) :]) for x in log.splitlines() if x.startswith(f"{kind} {{")]


def test_the_gradient_variance_is_that_of_explicit_gradients(logs):
    of_two = [log for log in logs if "LATE" in log]
    assert all("LATE 0" in log for log in of_two)  # of baseline_research.on_cpu.stand_ins's gloo
    first, second = (cases(log, "GRADIENT") for log in of_two)
    assert first == second
    assert {f"plain {stage}" for stage in (1, 2, 3)} <= {case["case"] for case in first}
    for case in first:
        name = case["case"]
        measured = case["measured"]
        expected = case["expected"]
        variance = measured["js/gradient_variance"]
        square = measured["js/gradient_norm_squared"]
        assert expected["equal"] == ("dynamic" not in name), name
        relative = 1e-3 if "bf16" in name else 1e-5
        assert variance == pytest.approx(expected["variance"], rel=relative), name
        # a difference of two squared norms of about the variance's size
        allowed = relative * expected["variance"]
        assert square == pytest.approx(expected["mean_square"], abs=allowed), name
        assert measured["js/gradient_snr"] == square / variance


def test_with_lora_vllm_gets_what_the_actor_is_and_only_adapters_train(logs):
    found = [case for log in logs for case in cases(log, "LORA")]
    names = {case["case"] for case in found}
    assert {f"{r} ZeRO-{s}" for r in ("1 rank", "2 ranks") for s in range(4)} <= names
    for case in found:
        check(case)


def check(case: dict) -> None:
    name = case["case"]
    exact = 2e-2 if "bf16" in name else 1e-5
    named = "1 rank" in name
    matrices = {"q_proj", "down_proj"} if named else set(MATRICES)
    assert len(case["sent"]) == LAYERS * len(matrices), name
    assert {key.split(".")[-2] for key in case["sent"]} == matrices, name
    assert all(key.startswith("model.layers.") for key in case["sent"]), name
    # every adapter trains and nothing else does
    assert all("lora_" in key for key in case["changed by training"]), name
    assert len(case["changed by training"]) == 2 * len(case["sent"]), name
    assert case["changed by the sync"] == [], name

    assert case["largest change"] > 0.02, name
    assert case["merge error"] < exact / 4, name
    assert case["gap to the start"] > 0.05, name
    assert case["gap to vLLM"] < exact, name
    if "ZeRO-3" in name:
        adapters = 4 * sum(
            rows + columns
            for matrix, rows, columns in (
                *(("q_proj", 16, 16), ("k_proj", 8, 16), ("v_proj", 8, 16), ("o_proj", 16, 16)),
                *(("gate_proj", 24, 16), ("up_proj", 24, 16), ("down_proj", 16, 24)),
            )
            if matrix in matrices
        )
        layer = 16 * 16 + 16 * 24 if named else LAYER
        biases = 16 if named else 16 + 8 + 8
        assert case["gathered"] == layer + biases + adapters, name  # one decoder layer
    if "resumed otherwise" in case:
        assert case["gap when colocated"] == 0, name
        assert case["changed by resuming"] == case["resumed otherwise"] == [], name
        assert case["sent when resumed"] == 0, name
        assert len(case["changed by going on"]) == 2 * len(case["sent"]), name
        assert case["gap to the merged checkpoint"] <= exact / 4, name
        assert case["gap to PEFT"] < exact, name
