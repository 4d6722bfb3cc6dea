from pathlib import Path

import pytest

from openrlhf_js.tiny import training
from openrlhf_js.tiny.settings import ESTIMATORS, Settings
from openrlhf_js.tiny.tasks import TASKS

RUN = Path("/run")


def flags(task="sort", **options):
    words = training.command(Settings(task), "js", RUN, RUN / "js", **options)[3:]
    return {
        word: following
        for word, following in zip(words, [*words[1:], "--"], strict=True)
        if word.startswith("--")
    }


def test_the_command_trains_the_estimator_on_the_runs_files():
    found = flags(gpu=False)
    assert found["--algo.advantage.estimator"] == "js"
    assert found["--data.prompt_dataset"] == "/run/data/train.jsonl"
    assert found["--ckpt.output_dir"] == "/run/js/model"
    assert "--train.colocate_all" not in found
    assert "--train.colocate_all" in flags(gpu=True)


@pytest.mark.parametrize("name", TASKS)
def test_the_command_knows_the_tasks_grader_and_lengths(name):
    found, task = flags(name, gpu=False), TASKS[name]
    assert Path(found["--reward.remote_url"]).is_file()
    assert int(found["--rollout.max_new_tokens"]) == task.max_new_tokens
    assert int(found["--data.max_len"]) == task.max_prompt_tokens + task.max_new_tokens


def test_every_step_trains_once_on_one_whole_batch():
    found, settings = flags(gpu=False), Settings()
    batch = settings.prompts_per_step * settings.responses_per_prompt
    assert int(found["--train.batch_size"]) == batch
    assert batch % int(found["--train.micro_batch_size"]) == 0
    assert batch % int(found["--rollout.micro_batch_size"]) == 0


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_the_training_program_knows_every_flag_and_estimator(estimator):
    pytest.importorskip("openrlhf")
    from openrlhf_js.plugin import flags as plugin_flags
    from openrlhf_js.plugin.parser import upstream_parser

    parser = upstream_parser()
    plugin_flags.add_flags(parser)
    words = training.command(Settings(), estimator, RUN, RUN, gpu=True)
    args = parser.parse_args(plugin_flags.translate(words[3:]))
    assert vars(args)["algo.advantage.estimator"] == estimator
