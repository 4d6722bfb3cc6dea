"""The command that trains the tiny model, with the very flags that a large one would be given."""

from __future__ import annotations

import sys
from pathlib import Path

from openrlhf_js.tiny.settings import Settings
from openrlhf_js.tiny.tasks import TASKS

GRADERS = Path(__file__).parents[2] / "reward_models"


def command(settings: Settings, estimator: str, run: Path, folder: Path, gpu: bool) -> list[str]:
    """The command line of `openrlhf_js.cli.train_ppo_ray` for one estimator.

    Args:
        settings: of the run.
        estimator: one of `settings.estimators`.
        run: holds `warm_start/` and `data/`, and gets `tensorboard/<estimator>/`.
        folder: gets `model/`.
        gpu: whether to use a GPU; DeepSpeed and vLLM then share one.
    """
    task = TASKS[settings.task]
    flags = {
        "actor.model_name_or_path": run / "warm_start",
        "actor.num_gpus_per_node": 1,
        "actor.adam.lr": settings.learning_rate,
        "reward.remote_url": GRADERS / task.grader,
        "reward.num_gpus_per_node": 1,
        "ref.num_gpus_per_node": 1,
        "critic.num_gpus_per_node": 1,
        "vllm.num_engines": 1,
        "algo.advantage.estimator": estimator,
        "algo.kl.init_coef": 0,
        "data.prompt_dataset": run / "data" / "train.jsonl",
        "data.label_key": "label",
        "data.max_len": task.max_tokens,
        "rollout.batch_size": settings.prompts_per_step,
        "rollout.n_samples_per_prompt": settings.responses_per_prompt,
        "rollout.micro_batch_size": 128,
        "rollout.max_new_tokens": task.max_new_tokens,
        "train.batch_size": settings.prompts_per_step * settings.responses_per_prompt,
        "train.micro_batch_size": 128,
        "train.seed": settings.seed,
        "ds.zero_stage": 2,
        "ds.attn_implementation": "sdpa",
        "eval.dataset": run / "data" / "held_out.jsonl",
        "eval.steps": settings.curve_every,
        "eval.temperature": 1.0,
        "eval.n_samples_per_prompt": settings.curve_samples,
        "ckpt.output_dir": folder / "model",
        "ckpt.path": folder / "checkpoints",
        "ckpt.best_metric_key": "none",
        "logger.tensorboard_dir": run / "tensorboard",
        "logger.wandb.run_name": estimator,
        "js.device": "gpu" if gpu else "cpu",
        **({"vllm.gpu_memory_utilization": 0.3} if gpu else {}),
    }
    switches = ["--vllm.enforce_eager", *(["--train.colocate_all"] if gpu else [])]
    words = [word for name, value in flags.items() for word in (f"--{name}", str(value))]
    return [sys.executable, "-m", "openrlhf_js.cli.train_ppo_ray", *words, *switches]
