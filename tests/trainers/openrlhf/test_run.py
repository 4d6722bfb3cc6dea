"""What we rely on in OpenRLHF, DeepSpeed and vLLM; the CPU stand-ins; a run's record."""

import errno
import fcntl
import importlib
import importlib.util
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from types import ModuleType, SimpleNamespace

import psutil
import pytest
import torch
from kit import save_seeing_policy, until, upstream_args

from answer_graders.programs.files import read_yaml
from baseline_research import on_cpu
from baseline_research.on_cpu import stand_ins as cpu
from baseline_research.study import stack
from baseline_research.tiny import model as tiny
from baseline_research.tiny.tasks import TASKS
from openrlhf_js.common.environment import RUN_ID
from openrlhf_js.trainers.openrlhf import flash_attn, upstream
from openrlhf_js.trainers.openrlhf.checks.rewards import loading
from openrlhf_js.trainers.openrlhf.flags import add_flags
from openrlhf_js.trainers.openrlhf.flags.parser import (
    changed,
    upstream_parser,
)
from openrlhf_js.trainers.openrlhf.run import failures, leftovers, ray_session
from openrlhf_js.trainers.openrlhf.run.checkpoints import (
    choose_checkpoint,
    has_checkpoint,
    latest_checkpoint,
    rank_problems,
)
from openrlhf_js.trainers.openrlhf.run.device import needs_gpu, versions
from openrlhf_js.trainers.openrlhf.run.record import SETTINGS, recorded
from openrlhf_js.trainers.openrlhf.upstream import BadInput, UpstreamMismatch


def test_the_installed_stack_has_every_name_that_we_rely_on():
    upstream.check([upstream.RELIED_ON, on_cpu.RELIED_ON])
    upstream.check([upstream.RELIED_ON_FOR_REWARD_TRAINING])


@pytest.mark.parametrize("hook", [on_cpu.WORKER_HOOK, ray_session.FLASH_ATTN_HOOK])
def test_what_ray_runs_in_a_worker_is_there(hook):
    module_name, _, name = hook.rpartition(".")
    assert callable(getattr(importlib.import_module(module_name), name))


def test_ray_that_did_not_start_in_time_is_started_again(monkeypatch):
    """What the first start left is ended, and nothing else."""
    sleep = ["sleep", "60"]
    older = subprocess.Popen(sleep)
    started = []

    def init(**_):
        started.append(subprocess.Popen(sleep))
        if len(started) == 1:
            raise Exception("The current node timed out during startup.")

    monkeypatch.setattr("ray.init", init)
    monkeypatch.setattr("ray.shutdown", lambda: None)
    try:
        ray_session._start_ray(ray_session.Node(python=[]), {})
        started[0].wait(10)  # long before its minute is over
        assert len(started) == 2
        assert started[1].poll() is None and older.poll() is None
    finally:
        for process in (older, *started):
            process.kill()
            process.wait()


@pytest.mark.parametrize(
    ("address", "settings"), [(None, {"address": "local"}), ("10.0.0.1:6379", {})]
)
def test_a_run_joins_no_ray_but_the_one_that_ray_address_names(monkeypatch, address, settings):
    """Ray by itself would join any that runs on the machine."""
    monkeypatch.setenv(RUN_ID, "this run")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    if address:
        monkeypatch.setenv("RAY_ADDRESS", address)
    for name in ("remove_dead_folders", "end_run", "_without_bars"):
        monkeypatch.setattr(ray_session, name, lambda *_: None)
    monkeypatch.setattr("ray.shutdown", lambda: None)
    started = []
    monkeypatch.setattr(
        ray_session, "_start_ray", lambda node, _: started.append(node) or sys.exit()
    )
    with pytest.raises(SystemExit), ray_session.ray_session(upstream_args(), "gpu"):
        pass
    assert [node.settings for node in started] == [settings]


@pytest.mark.parametrize("row", upstream.REPLACED, ids=lambda row: f"{row.module}.{row.name}")
def test_a_name_that_we_replace_is_there_and_so_is_our_part(row):
    """It has the parameters that ours counts on."""
    module_name, _, name = row.ours.rpartition(".")
    assert callable(getattr(importlib.import_module(module_name), name))
    assert row.parameters
    upstream.check([{row.module: {row.path: row.parameters}}])


def test_each_name_is_replaced_once_and_says_why():
    places = [(row.module, row.name) for row in upstream.REPLACED]
    assert len(set(places)) == len(places)
    for row in upstream.REPLACED:
        assert row.why and row.ends_when


def test_a_process_gets_the_parts_that_it_reads(monkeypatch):
    module = ModuleType("module")
    monkeypatch.setitem(sys.modules, "module", module)

    def row(name, read_by, **settings):
        ours = f"tests.of.ours.{name}"
        return upstream.Replacement("module", name, "x", ours, read_by, "", "", **settings)

    parts = ModuleType("tests.of.ours")
    parts.plain = object()
    parts.made = lambda args: ("made", args)
    parts.Actor = type("Actor", (), {"method": lambda self: None})
    monkeypatch.setitem(sys.modules, "tests.of.ours", parts)
    rows = (
        row("plain", "one"),
        row("made", "one", of_run=True),
        row("Actor", "two", ray_options={"num_gpus": 1}),
    )
    monkeypatch.setattr(upstream, "REPLACED", rows)
    upstream.replace_names("one", args="args")
    assert (module.plain, module.made) == (parts.plain, ("made", "args"))
    assert not hasattr(module, "Actor")
    upstream.replace_names("two")
    assert module.Actor._default_options["num_gpus"] == 1
    assert issubclass(upstream.plain_class(module.Actor), parts.Actor)
    path = f"Actor.{upstream.ACTOR}"
    assert upstream.replaced_names("two") == {"module": {path: "x"}}  # is checked before a run
    assert upstream.replaced_names("one", "two") == {
        "module": {"plain": "x", "made": "x", path: "x"}
    }


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


def test_an_actor_gets_a_free_port_that_the_system_gives_to_nobody_else(monkeypatch):
    launcher = SimpleNamespace(BaseDistributedActor=type("BaseDistributedActor", (), {}))
    act, _ = cpu.REPLACEMENTS["openrlhf.trainer.ray.launcher"]
    act(launcher)
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        used = taken.getsockname()[1]
        monkeypatch.setattr(cpu, "PORTS", [used, used, used, 20_000])
        assert launcher.BaseDistributedActor._get_free_port() == 20_000
    given = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    monkeypatch.undo()
    assert max(cpu.PORTS) < given


def test_products_in_bfloat16_are_rounded_from_float32(functional, monkeypatch):
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
    functional.linear(inputs.double(), weight.double())
    monkeypatch.setattr(cpu, "_multiplies_bfloat16", lambda: True)
    functional.linear(inputs, weight)
    assert functional.dtypes[2:] == [torch.float64, torch.bfloat16]  # stay as they are


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


def test_a_dry_run_reads_a_model_that_sees_where_torchvision_is_installed(tmp_path, monkeypatch):
    folder = save_seeing_policy(tmp_path / "policy")
    (tmp_path / "torchvision").mkdir()
    (tmp_path / "torchvision/__init__.py").write_text("import torch\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    code = (
        "from openrlhf_js.common.processors import load_processor\n"
        "from openrlhf_js.trainers.openrlhf.checks.models import without_torch\n"
        f"with without_torch(): assert load_processor({str(folder)!r}, False).image_processor"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


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
    args = upstream_args(vllm__enable_sleep=True, ds__adam_offload=True)
    cpu.adapt(args)
    assert not (args.vllm.enable_sleep or args.ds.adam_offload)
    assert args.vllm.sync_backend != "nccl"
    for program in ("train_ppo_ray", "train_rm"):
        flat = vars(upstream_parser(program).parse_args([]))
        assert needs_gpu(flat) == []
        assert needs_gpu(flat | {"ds.param_dtype": "fp16", "ds.load_in_4bit": True}) == [
            "--ds.load_in_4bit needs a GPU",
            "--ds.param_dtype fp16 needs a GPU",
        ]


@pytest.mark.parametrize(
    ("settings", "needed"),
    [
        ({}, 2 + 5 + 2 * 3 + 11),
        ({"critic__model_name_or_path": "model"}, 2 + 5 + 2 * 3 + 11 + 7),
        ({"reward__remote_url": "reward.py", "algo__kl__init_coef": 0.0}, 2 + 2 * 3),
        ({"train__colocate_all": True, "critic__model_name_or_path": "model"}, 2),
        ({"train__colocate_all": True, "train__async_enable": True}, 2 + 2 * 3),
        ({"train__colocate_actor_ref": True}, 2 + 2 * 3 + 11),
        ({"critic__model_name_or_path": "model", "train__colocate_critic_reward": True},
         2 + 5 + 2 * 3 + 7),
    ],
    ids=str,
)  # fmt: skip
def test_a_run_that_would_wait_for_gpus_is_refused(settings, needed, monkeypatch, capsys):
    gpus = {"actor": 2, "ref": 5, "critic": 7, "reward": 11}
    each = {f"{role}__num_gpus_per_node": number for role, number in gpus.items()}
    args = upstream_args(vllm__num_engines=3, vllm__tensor_parallel_size=2, **each, **settings)
    monkeypatch.setattr("ray.cluster_resources", lambda: {"GPU": float(needed)})
    ray_session._check_gpus(args, None)
    monkeypatch.setattr("ray.cluster_resources", lambda: {"GPU": needed - 1.0})
    with pytest.raises(BadInput, match=f"need {needed} GPUs; this machine has {needed - 1}: "):
        ray_session._check_gpus(args, None)
    ray_session._check_gpus(args, "10.0.0.1:6379")
    said = " ".join(capsys.readouterr().out.split())
    assert said.startswith("openrlhf_js: ")  # the run's screen shows no other lines
    assert "The run waits for more" in said


def test_attention_falls_back_to_sdpa_and_rings_are_refused():
    args = SimpleNamespace(
        ds=SimpleNamespace(attn_implementation="flash_attention_2", ring_attn_size=1)
    )
    assert flash_attn.fall_back_to_sdpa(args)
    assert args.ds.attn_implementation == "sdpa"
    assert not flash_attn.fall_back_to_sdpa(args)
    args.ds = SimpleNamespace(attn_implementation="flash_attention_2", ring_attn_size=2)
    with pytest.raises(BadInput, match="ring attention needs flash-attn"):
        flash_attn.fall_back_to_sdpa(args)


# --- the record of a run --------------------------------------------------------------------


def test_a_runs_file_has_settings_versions_and_each_start(tmp_path):
    parser = upstream_parser()
    add_flags(parser)
    words = ["--ckpt.path", str(tmp_path / "checkpoints"), "--logger.wandb.run_name", "js"]
    words += ["--logger.tensorboard_dir", str(tmp_path), "--logger.wandb.key", "hush-hush"]

    def start(seed, *flags):
        return recorded(parser.parse_args([*words, "--train.seed", seed, *flags]), parser)

    def read():
        text = (tmp_path / "js" / SETTINGS).read_text()
        assert "hush-hush" not in text
        assert (tmp_path / "checkpoints" / SETTINGS).read_text() == text
        return read_yaml(tmp_path / "js" / SETTINGS)

    for seed, error in (("1", RuntimeError), ("2", KeyboardInterrupt)):
        with pytest.raises(error), start(seed):
            raise error
    with start("3", "--ckpt.load_enable", "--js.requeued", "--js.changed", "train.seed"):
        settings = read()
        record = settings["record"]
        assert settings["train.seed"] == 3
        assert [earlier["set"]["train.seed"] for earlier in record["earlier_starts"]] == [1, 2]
        assert "ckpt.max_num" not in record["earlier_starts"][0]["set"]
        outcomes = [earlier["outcome"] for earlier in record["earlier_starts"]]
        assert [*outcomes, record["outcome"]] == ["failed", "interrupted", None]
        assert record["ended"] is None
        assert {"python", "torch"} <= record["versions"].keys()
    record = read()["record"]
    assert record["outcome"] == "done"
    assert record["ended"] >= record["started"]
    file = str(tmp_path / "js" / SETTINGS)  # starts the run again, and does not resume it
    again = vars(parser.parse_args([file, "--logger.wandb.key", "hush-hush"]))
    expected = vars(parser.parse_args([*words, "--train.seed", "3"]))
    assert {name: again[name] for name in again if changed(name, again[name], parser)} == {
        name: expected[name] for name in expected if changed(name, expected[name], parser)
    }
    assert (SETTINGS, record["outcome"]) == (stack.SETTINGS, stack.DONE)  # as a study reads it


# --- a user's file ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("def reward_func(queries, prompts, labels): ...", None),
        ("import threading, time\nthreading.Thread(target=time.sleep, args=[99]).start()\n"
         "def reward_func(queries, prompts, labels): ...", None),
        ("import nothing_of_that_name", "No module named 'nothing_of_that_name'"),
        ("def reward(queries, prompts, labels): ...", "it defines no reward_func"),
        ("raise SystemExit", "it exits Python"),
        ("while True: pass", "its import took more than 1 s (--js.reward_timeout_seconds)"),
    ],
)  # fmt: skip
def test_a_grader_is_loaded_before_the_run(code, said, tmp_path):
    path = tmp_path / "grader.py"
    path.write_text(code)
    limit_seconds = 1 if "while" in code else 100
    with loading(str(path), "reward_func", "cpu", limit_seconds) as finish:
        found = finish(None)
    assert found.problem == said if said is None else said in found.problem


# --- failures ---------------------------------------------------------------------------------


def test_a_dead_engine_a_killed_actor_and_a_full_disk_are_one_line():
    from ray.exceptions import ActorDiedError, OwnerDiedError, RayTaskError
    from vllm.v1.engine.exceptions import EngineDeadError

    dead = RayTaskError("fit", "", EngineDeadError(), "ray::fit", 1, "127.0.0.1")
    lost = OwnerDiedError("00" * 28, b"", "")  # an object of a node that is gone
    for error, named in (
        (dead.as_instanceof_cause(), "vLLM engine"),
        (OSError(errno.ENOSPC, "No space left", "a/b"), "a/b"),
        (ActorDiedError(), "a process of the run died"),
        (lost, "a process of the run died"),
        (RuntimeError("gloo: Connection closed by peer"), "a process of the run died"),
        (RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos"), "--ckpt.path"),
    ):
        said, status = failures.explained(error)
        assert named in said and "\n" not in said and status == 1
    users_own = ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")  # of a tool
    assert failures.explained(users_own) is None


# --- checkpoints and restarts -----------------------------------------------------------------


def save(flat, tag, role="actor", latest=True):
    file = latest_checkpoint(flat, role)
    (file.parent / tag).mkdir(parents=True)
    for name in ("mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_00_optim_states.pt"):
        torch.save({"weight": torch.zeros(100)}, file.parent / tag / name)
    if latest:
        file.write_text(tag)


def damage(flat, tag, role="actor"):
    file = latest_checkpoint(flat, role).parent / tag / "mp_rank_00_model_states.pt"
    file.write_bytes(file.read_bytes()[:-100])


def test_a_damaged_checkpoint_is_skipped_for_the_newest_that_is_whole_of_every_model(
    tmp_path, capsys
):
    flat = vars(upstream_parser().parse_args(["--actor.num_gpus_per_node", "1"]))
    flat |= {"ckpt.path": str(tmp_path / "checkpoints"), "critic.num_gpus_per_node": 1}
    for step in (2, 90, 9, 10):  # 90 is an earlier run's
        save(flat, f"global_step{step}")
        save(flat, f"global_step{step}", role="critic", latest=step == 2)
    choose_checkpoint(flat)
    assert latest_checkpoint(flat, "critic").read_text() == "global_step10"
    assert capsys.readouterr().err == ""
    damage(flat, "global_step10", "critic")
    choose_checkpoint(flat)
    assert latest_checkpoint(flat).read_text() == "global_step9"
    assert "checkpoint global_step10 is damaged, global_step9 is" in capsys.readouterr().err
    for role in ("_actor", "_critic"):  # else upstream would remove a whole one to make room
        left = {path.name for path in Path(flat["ckpt.path"], role).iterdir()}
        assert left == {"latest", "global_step2", "global_step9", "global_step90"}
    latest_checkpoint(flat).write_text("")  # as after a power failure
    choose_checkpoint(flat)
    assert latest_checkpoint(flat).read_text() == "global_step9"
    for file in Path(flat["ckpt.path"], "_critic/global_step9").glob("*_optim_states.pt"):
        file.unlink()  # a rank had not written yet
    choose_checkpoint(flat)
    assert latest_checkpoint(flat).read_text() == "global_step90"
    for step in (2, 90):
        damage(flat, f"global_step{step}")
    with pytest.raises(BadInput, match=r"checkpoints has no complete checkpoint"):
        choose_checkpoint(flat)
    capsys.readouterr()
    assert not has_checkpoint(flat)  # as --js.requeued asks
    assert "no complete checkpoint: the run begins again" in capsys.readouterr().out
    save(flat, "global_step91")
    flat["actor.num_gpus_per_node"] = 2
    assert has_checkpoint(flat)  # it is refused, and the run does not begin again
    assert list(rank_problems(flat))


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
    """Python's cleaner of shared memory outlives it."""
    monkeypatch.setattr(leftovers, "PATIENCE_SECONDS", 0.3)
    monkeypatch.setattr(leftovers, "SIGNALS", ())  # pytest keeps its own
    environment = {**os.environ, RUN_ID: "this run"}
    command = [sys.executable, "-c", ENGINE]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as engine:
        memory = Path("/dev/shm", engine.stdout.readline().strip())
        assert memory.is_file()
        leftovers.end_run("this run")
        assert not psutil.pid_exists(engine.pid)
    until(lambda: not memory.exists(), 20)


def test_each_node_of_a_cluster_must_have_our_versions_and_see_the_files(tmp_path, monkeypatch):
    here = versions()
    args = upstream_args(
        ckpt__path=str(tmp_path / "new/checkpoints"),
        data__prompt_dataset=f"{tmp_path}@train, {__file__[:-1]}?,hub/name",
        critic__model_name_or_path=str(tmp_path),
        algo__advantage__estimator=f"{__file__}:own",
        reward__remote_url=["http://localhost:1/get_reward"],
    )

    def answers(function, paths):
        assert paths[:-1] == [str(tmp_path), __file__, str(tmp_path), __file__]
        assert Path(paths[-1]).parent == tmp_path  # written, to see
        return {
            "10.0.0.1": function(paths),
            "10.0.0.2": ({**here, "torch": "2.0.0"}, "/root", paths[-1:]),
            "10.0.0.3": RuntimeError("no worker"),
        }

    monkeypatch.setattr(ray_session, "_on_each_node", answers)
    with pytest.raises(BadInput) as caught:
        ray_session._check_nodes(args)
    other, elsewhere, unseen, dead = str(caught.value).splitlines()
    assert f"10.0.0.2 looks for relative paths in /root, this command in {os.getcwd()}" in elsewhere
    assert "10.0.0.2" in other and "'torch': '2.0.0'" in other
    assert "10.0.0.2" in unseen and "--ckpt.path" in unseen
    assert "10.0.0.3" in dead
    assert not list(tmp_path.iterdir())
