"""What we rely on in OpenRLHF, DeepSpeed and vLLM; the CPU stand-ins; a run's record."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from openrlhf_js.plugin import cpu, upstream
from openrlhf_js.plugin.flags import REWARD_MODEL
from openrlhf_js.plugin.parser import upstream_parser
from openrlhf_js.plugin.run import RECORD, recorded
from openrlhf_js.plugin.upstream import BadInput, UpstreamMismatch
from openrlhf_js.report import runs


def test_the_installed_stack_has_every_name_that_we_rely_on():
    upstream.check(upstream.RELIED_ON, upstream.RELIED_ON_FOR_CPU)
    upstream.check(upstream.RELIED_ON_FOR_REWARD_TRAINING)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"openrlhf.trainer.gone": {"X": ""}}, "openrlhf.trainer.gone.X is missing"),
        ({"openrlhf.utils.agent": {"Gone": ""}}, "openrlhf.utils.agent.Gone is missing"),
        ({"openrlhf.utils.config": {"hierarchize": "arguments"}}, "not ('arguments',)"),
    ],
)
def test_a_stack_that_does_not_fit_is_named_with_what_works(table, message):
    with pytest.raises(UpstreamMismatch) as caught:
        upstream.check(table)
    assert message in str(caught.value) and "works with openrlhf 0.11.2" in str(caught.value)


QUOTED = [
    line.split(" | ") if " | " in line else [module, line]
    for module, (_, lines) in cpu.REPLACEMENTS.items()
    for line in lines
]


@pytest.mark.parametrize(("module", "line"), QUOTED)
def test_the_line_that_a_cpu_replacement_stands_in_for_is_still_there(module, line):
    package, *rest = module.split(".")
    root = Path(importlib.util.find_spec(package).submodule_search_locations[0])
    source = root.joinpath(*rest).with_suffix(".py").read_text()
    assert re.sub(r"\s+", "", line) in re.sub(r"\s+", "", source)


def test_replacements_act_now_or_when_their_module_is_imported():
    import openrlhf.utils.deepspeed.deepspeed as ds

    assert torch.cuda.current_device() == "cpu"
    assert torch.device(f"cuda:{torch.cuda.current_device()}").type == "cuda"
    assert torch.zeros(1, device=torch.cuda.current_device()).device.type == "cpu"
    assert ds.init_device_mesh.__wrapped__
    cpu.install()  # a second time does no harm
    assert torch.cuda.current_device() == "cpu"


def test_flash_attn_is_lent_to_openrlhf_alone():
    importlib.import_module("openrlhf.models.ring_attn_utils")
    assert "flash_attn" not in sys.modules
    from transformers.utils import is_flash_attn_2_available

    assert not is_flash_attn_2_available()


def test_packed_sequences_have_the_log_probabilities_of_padded_ones():
    from openrlhf.models import Actor
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=30,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
    )
    config._attn_implementation = "sdpa"
    config.use_cache = False  # as Actor sets it for a model that it loads
    actor = Actor(Qwen2ForCausalLM(config).eval())
    actor.temperature = 1.0
    tokens = torch.randint(0, 30, (3, 9))
    padded = torch.ones(3, 9, dtype=torch.long)
    padded[0, :4] = 0
    padded[2, :2] = 0
    action_mask = torch.ones(3, 4, dtype=torch.bool)
    found = []
    for actor.packing_samples in (False, True):
        with torch.no_grad():
            found.append(actor(tokens, action_mask, attention_mask=padded))
    torch.testing.assert_close(found[0], found[1], atol=1e-5, rtol=1e-4)


def test_what_only_a_gpu_can_do_is_refused_and_what_only_it_needs_is_left_out():
    def arguments(**ds):
        settings = {"load_in_4bit": False, "param_dtype": "bf16", "use_liger_kernel": False}
        settings |= {"tensor_parallel_size": 1, "enable_sleep": False, "adam_offload": True}
        group = SimpleNamespace(num_nodes=1, num_gpus_per_node=2, optim="adam")
        vllm = SimpleNamespace(num_engines=3, tensor_parallel_size=1, enable_sleep=True)
        groups = dict.fromkeys(("actor", "critic", "ref", "reward"), group)
        return SimpleNamespace(ds=SimpleNamespace(**(settings | ds)), vllm=vllm, **groups)

    args = arguments()
    notices = cpu.adapt(args)
    assert not (args.vllm.enable_sleep or args.ds.adam_offload) and len(notices) == 2
    assert args.vllm.sync_backend != "nccl"
    assert cpu.pretend_gpus(args) == 4 * 2 + 3
    with pytest.raises(BadInput) as caught:
        cpu.adapt(arguments(param_dtype="fp16", load_in_4bit=True))
    assert str(caught.value).splitlines() == [
        "--ds.load_in_4bit needs a GPU",
        "--ds.param_dtype fp16 needs a GPU",
    ]


def test_what_needs_a_gpu_are_flags_of_upstreams_and_none_is_asked_for_by_itself():
    programs = [upstream_parser(), upstream_parser("train_rm", REWARD_MODEL)]
    defaults = [vars(program.parse_args([])) for program in programs]
    for flag in (*cpu.WITHOUT_GPU, *cpu.GPU_MEMORY):
        found = {values[flag] for values in defaults if flag in values}
        assert found == {cpu.WITHOUT_GPU.get(flag, False)}, flag


def test_attention_falls_back_to_sdpa_with_a_notice_and_rings_are_refused():
    ds = SimpleNamespace(attn_implementation="flash_attention_2", ring_attn_size=1)
    assert "sdpa instead of flash_attention_2" in cpu.fall_back_to_sdpa(SimpleNamespace(ds=ds))
    assert ds.attn_implementation == "sdpa"
    assert cpu.fall_back_to_sdpa(SimpleNamespace(ds=ds)) is None
    ds = SimpleNamespace(attn_implementation="flash_attention_2", ring_attn_size=2)
    with pytest.raises(BadInput, match="ring attention needs flash-attn"):
        cpu.fall_back_to_sdpa(SimpleNamespace(ds=ds))


# --- the record of a run --------------------------------------------------------------------

PARSER = argparse.ArgumentParser()
PARSER.add_argument("--train.seed", type=int, default=42)
PARSER.add_argument("--actor.adam.betas", type=float, nargs=2, default=[0.9, 0.95])


def arguments(folder, **more):
    flags = {
        "logger.tensorboard_dir": folder and str(folder),
        "logger.wandb.run_name": "js",
        "logger.wandb.key": "hush-hush",
        "train.seed": 7,
        "eval.steps": float("inf"),
        "actor.adam.betas": (0.9, 0.95),
        **more,
    }
    return argparse.Namespace(**flags)


def read(folder):
    def refuse(constant):
        raise AssertionError(f"{constant} is no strict JSON")

    return json.loads((folder / "js" / RECORD).read_text(), parse_constant=refuse)


def test_the_flags_are_there_while_it_runs(tmp_path):
    with recorded(arguments(tmp_path), PARSER):
        found = read(tmp_path)
        assert (found["ended"], found["outcome"]) == (None, None)
        assert found["flags"]["train.seed"] == 7
        assert found["flags"]["actor.adam.betas"] == [0.9, 0.95]
        assert found["flags"]["eval.steps"] == "inf"
        assert "train.seed" in found["changed"]
        assert "actor.adam.betas" not in found["changed"]
        assert {"python", "torch"} <= found["versions"].keys()
    assert "hush-hush" not in (tmp_path / "js" / RECORD).read_text()
    found = read(tmp_path)
    assert found["outcome"] == "done"
    assert found["ended"] >= found["started"]
    assert [path.name for path in (tmp_path / "js").iterdir()] == [RECORD]  # nothing half-written


@pytest.mark.parametrize(
    ("error", "outcome"), [(RuntimeError, "failed"), (KeyboardInterrupt, "interrupted")]
)
def test_how_it_ended_is_recorded(tmp_path, error, outcome):
    with pytest.raises(error), recorded(arguments(tmp_path), PARSER):
        raise error
    assert read(tmp_path)["outcome"] == outcome


def test_the_report_reads_what_is_recorded(tmp_path):
    assert runs.CONFIG == RECORD
    with recorded(arguments(tmp_path), PARSER):
        config = runs.read_config(tmp_path / "js")
        assert config.settings["--actor.adam.betas"] == "0.9 0.95"
        assert config.outcome is None
    assert runs.read_config(tmp_path / "js").outcome == "done"
