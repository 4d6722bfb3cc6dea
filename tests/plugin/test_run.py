"""What we rely on in OpenRLHF, DeepSpeed and vLLM; the CPU stand-ins; a run's record."""

import argparse
import errno
import fcntl
import importlib
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace

import psutil
import pytest
import torch
from kit import save_seeing_policy, upstream_args

from openrlhf_js.plugin import cpu, upstream
from openrlhf_js.plugin.flags.parser import upstream_parser
from openrlhf_js.plugin.run import failures, leftovers, ray_session, restarts
from openrlhf_js.plugin.run.checkpoints import choose_checkpoint, latest_checkpoint
from openrlhf_js.plugin.run.device import versions
from openrlhf_js.plugin.run.record import RECORD, recorded
from openrlhf_js.plugin.run.restarts import keep_running
from openrlhf_js.plugin.run.user_file import load_file
from openrlhf_js.plugin.upstream import BadInput, UpstreamMismatch
from openrlhf_js.study import log
from openrlhf_js.tiny import model as tiny
from openrlhf_js.tiny.tasks import TASKS


def test_the_installed_stack_has_every_name_that_we_rely_on():
    upstream.check([upstream.RELIED_ON, upstream.RELIED_ON_FOR_CPU])
    upstream.check([upstream.RELIED_ON_FOR_REWARD_TRAINING])


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
        upstream.check([table])
    assert message in str(caught.value)
    assert "works with openrlhf 0.11.2" in str(caught.value)


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


@pytest.fixture
def functional(monkeypatch):
    """A module with torch's linear, replaced as on a processor that cannot multiply bfloat16."""
    monkeypatch.setattr(cpu, "_multiplies_bfloat16", lambda: False)
    module = ModuleType("functional")
    module.dtypes = []  # of the products that torch is asked for

    def linear(input, weight, bias=None):
        module.dtypes.append(input.dtype)
        return torch._C._nn.linear(input, weight, bias)

    module.linear = linear
    cpu.REPLACEMENTS["torch.nn.functional"][0](module)
    return module


def test_products_in_bfloat16_are_rounded_from_float32(functional):
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(8, 256, generator=generator).bfloat16().requires_grad_()
    weight = torch.randn(4, 256, generator=generator).bfloat16().requires_grad_()
    bias = torch.randn(4, generator=generator).bfloat16().requires_grad_()
    outputs = functional.linear(inputs, weight, bias)
    precise = inputs.double() @ weight.double().T + bias.double()
    assert outputs.dtype == torch.bfloat16
    torch.testing.assert_close(outputs.double(), precise, rtol=2**-8, atol=1e-4)
    outputs.sum().backward()
    assert {leaf.grad.dtype for leaf in (inputs, weight, bias)} == {torch.bfloat16}
    expected = inputs.detach().double().sum(0).expand(4, 256)
    torch.testing.assert_close(weight.grad.double(), expected, rtol=2**-8, atol=1e-4)
    assert bias.grad.tolist() == [8, 8, 8, 8]
    without_bias = functional.linear(inputs, weight)
    torch.testing.assert_close(without_bias, (precise - bias.double()).bfloat16())
    assert functional.dtypes == [torch.float32, torch.float32]


def test_other_products_stay_as_they_are(functional, monkeypatch):
    inputs = torch.ones(2, 3, dtype=torch.float64)
    assert functional.linear(inputs, inputs).tolist() == [[3, 3], [3, 3]]
    monkeypatch.setattr(cpu, "_multiplies_bfloat16", lambda: True)
    half = torch.full((2, 3), 1 / 3, dtype=torch.bfloat16)
    assert torch.equal(functional.linear(half, half), torch._C._nn.linear(half, half))
    assert functional.dtypes == [torch.float64, torch.bfloat16]


def test_flash_attn_is_lent_to_openrlhf_alone():
    importlib.import_module("openrlhf.models.ring_attn_utils")
    assert "flash_attn" not in sys.modules
    from transformers.utils import is_flash_attn_2_available

    assert not is_flash_attn_2_available()


@pytest.mark.skipif(importlib.util.find_spec("torchvision") is not None, reason="it is there")
def test_a_model_that_sees_is_read_and_run_without_torchvision(tmp_path, monkeypatch):
    from transformers import AutoProcessor
    from vllm.engine.arg_utils import EngineArgs
    from vllm.model_executor.models import qwen2_5_vl, qwen2_vl

    assert qwen2_vl.smart_resize(30, 60, 28, 28 * 28, 56 * 56) == (28, 56)
    assert qwen2_5_vl.Qwen2_5_VLForConditionalGeneration
    folder = str(save_seeing_policy(tmp_path))
    assert AutoProcessor.from_pretrained(folder).image_processor
    monkeypatch.setenv("LD_PRELOAD", "")  # vLLM adds to it
    engine = EngineArgs(folder, max_model_len=64, enforce_eager=True).create_engine_config()
    assert engine.model_config.is_multimodal_model
    # a seeded generator of the CPU cannot be turned back after a part of a prompt
    assert not engine.scheduler_config.enable_chunked_prefill


def test_packed_sequences_have_the_log_probabilities_of_padded_ones():
    from openrlhf.models import Actor

    model = tiny.make_model(tiny.make_tokenizer(TASKS["sort"].tokens), seed=0, width=32, layers=2)
    model.config.use_cache = False  # as Actor sets it for a model that it loads
    actor = Actor(model.eval())
    actor.temperature = 1.0
    tokens = torch.randint(0, len(TASKS["sort"].tokens), (3, 9))
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
        engines = {"vllm__num_engines": 3, "vllm__enable_sleep": True, "ds__adam_offload": True}
        roles = ("actor", "critic", "ref", "reward")
        groups = {f"{role}__num_gpus_per_node": 2 for role in roles}
        return upstream_args(**engines, **groups, **{f"ds__{x}": value for x, value in ds.items()})

    args = arguments()
    notices = cpu.adapt(args)
    assert not (args.vllm.enable_sleep or args.ds.adam_offload)
    assert len(notices) == 2
    assert args.vllm.sync_backend != "nccl"
    assert cpu.pretend_gpus(args) == 4 * 2 + 3
    with pytest.raises(BadInput) as caught:
        cpu.adapt(arguments(param_dtype="fp16", load_in_4bit=True))
    assert str(caught.value).splitlines() == [
        "--ds.load_in_4bit needs a GPU",
        "--ds.param_dtype fp16 needs a GPU",
    ]


def test_what_needs_a_gpu_are_flags_of_upstreams_and_none_is_asked_for_by_itself():
    programs = [upstream_parser(), upstream_parser("train_rm")]
    defaults = [vars(program.parse_args([])) for program in programs]
    for flag in (*cpu.WITHOUT_GPU, *cpu.GPU_MEMORY):
        found = {values[flag] for values in defaults if flag in values}
        assert found == {cpu.WITHOUT_GPU.get(flag, False)}, flag


def test_attention_falls_back_to_sdpa_with_a_notice_and_rings_are_refused():
    ds = SimpleNamespace(attn_implementation="flash_attention_2", ring_attn_size=1)
    (notice,) = cpu.fall_back_to_sdpa(SimpleNamespace(ds=ds))
    assert "sdpa instead of flash_attention_2" in notice
    assert ds.attn_implementation == "sdpa"
    assert cpu.fall_back_to_sdpa(SimpleNamespace(ds=ds)) == []
    ds = SimpleNamespace(attn_implementation="flash_attention_2", ring_attn_size=2)
    with pytest.raises(BadInput, match="ring attention needs flash-attn"):
        cpu.fall_back_to_sdpa(SimpleNamespace(ds=ds))


# --- the record of a run --------------------------------------------------------------------

PARSER = argparse.ArgumentParser()
PARSER.add_argument("--train.seed", type=int, default=42)
PARSER.add_argument("--actor.adam.betas", type=float, nargs=2, default=[0.9, 0.95])


def arguments(folder, **more):
    flags = {
        "ckpt.path": str(folder / "checkpoints"),
        "ckpt.load_enable": False,
        "logger.tensorboard_dir": str(folder),
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
        assert found["flags"]["eval.steps"] == "Infinity"
        assert "train.seed" in found["changed"]
        assert "actor.adam.betas" not in found["changed"]
        assert {"python", "torch"} <= found["versions"].keys()
    assert "hush-hush" not in (tmp_path / "js" / RECORD).read_text()
    found = read(tmp_path)
    assert found["outcome"] == "done"
    assert found["ended"] >= found["started"]
    assert [path.name for path in (tmp_path / "js").iterdir()] == [RECORD]  # nothing half-written
    beside_checkpoints = tmp_path / "checkpoints" / RECORD
    assert beside_checkpoints.read_text() == (tmp_path / "js" / RECORD).read_text()


def test_a_resumed_run_keeps_each_start(tmp_path):
    for seed, error in ((1, RuntimeError), (2, KeyboardInterrupt)):
        with pytest.raises(error), recorded(arguments(tmp_path, **{"train.seed": seed}), PARSER):
            raise error
    with recorded(arguments(tmp_path, **{"train.seed": 3}), PARSER):
        starts = [*read(tmp_path)["earlier_starts"], read(tmp_path)]
        assert [start["flags"]["train.seed"] for start in starts] == [1, 2, 3]
        assert [start["outcome"] for start in starts] == ["failed", "interrupted", None]
    assert read(tmp_path)["flags"]["train.seed"] == 3
    assert log.is_done(tmp_path / "js")


def test_a_run_without_a_log_has_a_record_beside_its_checkpoints(tmp_path):
    without_log = {"logger.tensorboard_dir": None}
    for resumes, earlier in ((False, 0), (True, 1), (False, 0)):  # the last is another run
        changes = {"ckpt.load_enable": resumes, **without_log}
        with recorded(arguments(tmp_path, **changes), PARSER):
            found = json.loads((tmp_path / "checkpoints" / RECORD).read_text())
            assert len(found["earlier_starts"]) == earlier


# --- a user's file ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("def reward_func(queries, prompts, labels): ...", None),
        ("import threading, time\nreward_func = threading.Thread(target=time.sleep, args=[99])\n"
         "reward_func.start()", None),
        ("import nothing_of_that_name", "No module named 'nothing_of_that_name'"),
        ("def reward(queries, prompts, labels): ...", "it defines no reward_func"),
        ("raise SystemExit", "it ends Python"),
        ("while True: pass", "its import took over 1 s (--js.reward_timeout_seconds)"),
    ],
)  # fmt: skip
def test_a_grader_is_loaded_before_the_run(code, said, tmp_path):
    path = tmp_path / "grader.py"
    path.write_text(code)
    found = load_file(str(path), "reward_func", "cpu", 1 if "while" in code else 100)
    assert found.problem == said if said is None else said in found.problem


# --- failures ---------------------------------------------------------------------------------


def flags(folder, **more):
    flat = {"ckpt.path": str(folder / "checkpoints"), "js.save_batches": None, "js.restarts": 2}
    flat |= {"algo.advantage.estimator": "js", "logger.wandb.run_name": "one"}
    return {**flat, **{name.replace("__", "."): value for name, value in more.items()}}


def test_a_full_disk_is_one_line():
    said, status = failures.explained(OSError(errno.ENOSPC, "No space left", "a/b"))
    assert said == "no space is left on the disk: [Errno 28] No space left: 'a/b'"
    assert status == 1


def test_a_dead_engine_and_a_killed_actor_are_one_line():
    from ray.exceptions import ActorDiedError, OwnerDiedError, RayTaskError
    from vllm.v1.engine.exceptions import EngineDeadError

    dead = RayTaskError("fit", "", EngineDeadError(), "ray::fit", 1, "127.0.0.1")
    said, status = failures.explained(dead.as_instanceof_cause())
    assert "a vLLM engine died" in said
    assert status == 1
    said, _ = failures.explained(ActorDiedError())
    assert said.startswith("a process of the run died: The actor died unexpectedly")
    lost = OwnerDiedError("00" * 28, b"", "")  # an object of a node that is gone
    assert failures.explained(lost)[0].startswith("a process of the run died: ")
    said, _ = failures.explained(RuntimeError("gloo: Connection closed by peer"))
    assert said == "a process of the run died: gloo: Connection closed by peer"
    assert "\n" not in said


# --- checkpoints and restarts -----------------------------------------------------------------


def save(flat, tag, role="_actor", latest=True):
    file = latest_checkpoint(flat, role)
    (file.parent / tag).mkdir(parents=True)
    for name in ("mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_00_optim_states.pt"):
        torch.save({"weight": torch.zeros(100)}, file.parent / tag / name)
    if latest:
        file.write_text(tag)


def damage(flat, tag, role="_actor"):
    file = latest_checkpoint(flat, role).parent / tag / "mp_rank_00_model_states.pt"
    file.write_bytes(file.read_bytes()[:-100])


def test_a_damaged_checkpoint_is_skipped_for_the_newest_whole_one(tmp_path, capsys):
    flat = flags(tmp_path)
    for step in (2, 90, 9, 10):  # 90 is an earlier run's
        save(flat, f"global_step{step}")
    latest_checkpoint(flat).write_text("global_step10")
    choose_checkpoint(flat)
    assert latest_checkpoint(flat).read_text() == "global_step10"
    assert capsys.readouterr().err == ""
    damage(flat, "global_step10")
    choose_checkpoint(flat)
    assert latest_checkpoint(flat).read_text() == "global_step9"
    assert "checkpoint global_step10 is damaged, global_step9 is" in capsys.readouterr().err
    damage(flat, "global_step9")
    damage(flat, "global_step2")
    damage(flat, "global_step90")
    with pytest.raises(BadInput, match=r"no checkpoint in .*checkpoints is whole"):
        choose_checkpoint(flat)


def test_policy_and_critic_resume_one_step(tmp_path):
    flat = flags(tmp_path, algo__advantage__estimator="gae")
    for step in (2, 4):
        save(flat, f"global_step{step}")
        save(flat, f"global_step{step}", role="_critic", latest=step == 2)
    choose_checkpoint(flat)
    assert latest_checkpoint(flat, "_critic").read_text() == "global_step4"
    damage(flat, "global_step4", "_critic")
    choose_checkpoint(flat)
    assert latest_checkpoint(flat).read_text() == "global_step2"


@pytest.fixture
def started(monkeypatch):
    """The command lines of the children, whose ends are the items of `ends`: status, or checkpoint
    and status."""
    commands = []
    ends = []

    class Child:
        pid = 2**31 - 1

        def __init__(self, command, env, start_new_session):
            assert env[leftovers.RUN_ID]
            assert start_new_session
            commands.append(command)

        def wait(self):
            end = ends.pop(0)
            return end() if callable(end) else end

        def terminate(self):
            commands.append("terminate")

    monkeypatch.setattr(restarts.subprocess, "Popen", Child)
    monkeypatch.setattr(restarts.signal, "signal", lambda *_: None)
    return commands, ends


def test_a_crash_is_followed_by_a_start_from_the_last_checkpoint_of_this_run(tmp_path, started):
    flat = flags(tmp_path)
    commands, ends = started

    def saves_and_dies():
        time.sleep(0.01)
        save(flat, f"global_step{len(commands)}")
        return -9

    ends[:] = [1, -9, saves_and_dies, 1, saves_and_dies, 1, 5]
    assert keep_running(["--x"], flat) == 5
    assert ends == []  # two starts without a new checkpoint, and then no more
    resumed = ["--ckpt.load_enable" in command for command in commands]
    assert resumed == [False] * 3 + [True] * 4
    assert all("--logger.wandb.run_name=one" in command for command in commands)


@pytest.mark.parametrize("status", [0, 2, 130])
def test_what_is_no_crash_ends_it(status, tmp_path, started):
    started[1][:] = [1, status]
    assert keep_running([], flags(tmp_path)) == status


def test_a_run_under_nohup_outlives_its_terminal(tmp_path, started, monkeypatch):
    handled = {signal.SIGHUP: signal.SIG_IGN}
    monkeypatch.setattr(restarts.signal, "getsignal", lambda number: handled.get(number, 0))
    monkeypatch.setattr(restarts.signal, "signal", handled.__setitem__)

    def ends():
        assert handled[signal.SIGHUP] is signal.SIG_IGN
        assert callable(handled[signal.SIGTERM])
        return 0

    started[1][:] = [1, ends]
    assert keep_running([], flags(tmp_path)) == 0


def test_an_interruption_reaches_the_child(tmp_path, started):
    def interrupted():
        raise KeyboardInterrupt

    started[1][:] = [interrupted, 130]
    assert keep_running([], flags(tmp_path)) == 130
    assert started[0][-1] == "terminate"


def test_ray_folders_of_killed_runs_are_removed_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.setattr(leftovers.tempfile, "tempdir", str(tmp_path))
    for name in ("ojs-dead", "ojs-alive", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "lock").touch()
    (tmp_path / "ojs-starting").mkdir()  # has no lock yet
    handle, foreign = tempfile.mkstemp(prefix="psm_", dir="/dev/shm")  # as another container's
    os.close(handle)
    os.utime(foreign, (0, 0))
    try:
        with (tmp_path / "ojs-alive" / "lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            leftovers.remove_dead_folders()
        remaining = {path.name for path in tmp_path.iterdir()}
        assert remaining == {"ojs-alive", "ojs-starting", "other"}
        assert Path(foreign).exists()
    finally:
        os.unlink(foreign)


ENGINE = """
import signal, time
from multiprocessing.shared_memory import SharedMemory
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(SharedMemory(create=True, size=10).name, flush=True)
time.sleep(60)
"""


def test_an_engine_that_has_to_be_killed_leaves_no_shared_memory(monkeypatch):
    """Its resource tracker is not killed with it, which would race with its cleaning."""
    killed = []
    kill = psutil.Process.kill
    monkeypatch.setattr(
        psutil.Process, "kill", lambda process: (killed.append(process.pid), kill(process))
    )
    monkeypatch.setattr(leftovers, "PATIENCE_SECONDS", 0.3)
    monkeypatch.setattr(leftovers, "SIGNALS", ())  # pytest keeps its own
    environment = {**os.environ, leftovers.RUN_ID: "this run"}
    command = [sys.executable, "-c", ENGINE]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as engine:
        assert engine.stdout
        memory = Path("/dev/shm", engine.stdout.readline().strip())
        assert memory.is_file()
        leftovers.end_run("this run")
        assert set(killed) == {engine.pid}
        assert not psutil.pid_exists(engine.pid)
    deadline = time.monotonic() + 20
    while memory.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not memory.exists()


# --- the log ----------------------------------------------------------------------------------


def test_without_a_terminal_there_are_no_progress_bars():
    code = (
        "from tqdm import tqdm\n"
        "bar = tqdm(range(9))\n"
        "for i in bar: bar.set_postfix({'i': i})\n"
        "for i in (bar := tqdm(range(9), disable=False)): bar.set_postfix({'i': i})"
    )

    def shown(**variables):
        done = subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, **variables}, capture_output=True
        )
        return done.stderr.count(b"\r")

    assert shown() > 18
    bars = ray_session.BARS
    assert shown(**{f"TQDM_{name.upper()}": f"{value:g}" for name, value in bars.items()}) == 0


def test_each_node_of_a_cluster_must_have_our_versions_and_see_the_files(tmp_path, monkeypatch):
    here = versions()
    args = upstream_args(
        ckpt__path=str(tmp_path / "new/checkpoints"),
        data__prompt_dataset=str(tmp_path),
        reward__remote_url=["http://localhost:1/get_reward"],
    )

    def answers(function, paths):
        assert paths[0] == str(tmp_path) and Path(paths[-1]).parent == tmp_path  # written, to see
        return {
            "10.0.0.1": function(paths),
            "10.0.0.2": ({**here, "torch": "2.0.0"}, paths[-1:]),
            "10.0.0.3": RuntimeError("no worker"),
        }

    monkeypatch.setattr(ray_session, "_on_each_node", answers)
    with pytest.raises(BadInput) as caught:
        ray_session._check_nodes(args)
    other, unseen, dead = str(caught.value).splitlines()
    assert other.startswith("the node 10.0.0.2 has {")
    assert "'torch': '2.0.0'" in other
    assert unseen.startswith("the node 10.0.0.2 does not see --ckpt.path")
    assert dead.startswith("the node 10.0.0.3 starts no worker")
    assert not list(tmp_path.iterdir())
