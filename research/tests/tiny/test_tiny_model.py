"""The tiny model: its size, what it learns by imitation, and that programs take it."""

from dataclasses import replace

from kit import read_lines

from answer_graders.tasks import task_of
from baseline_research.tiny import model
from baseline_research.tiny.tasks import END, TASKS, sort, write_prompts


def test_imitation_lowers_the_loss_and_repeats_itself():
    def losses():
        tokenizer = model.make_tokenizer(sort.tokens)
        losses = []
        model.imitate(
            model.make_model(tokenizer, 0),
            tokenizer,
            replace(sort, warm_start_steps=12),
            sort.split(0, 200).train,
            seed=0,
            batch_size=16,
            on_step=lambda step, loss: losses.append(loss),
        )
        return losses

    first = losses()
    assert len(first) == 12
    assert first[-1] < first[0] - 0.3
    assert losses() == first


def test_rows_name_their_task_which_grades_as_the_quickstart_does(tmp_path):
    task = TASKS["countdown"]
    write_prompts(tmp_path / "one.jsonl", task, task.split(0, 40).held_out[:1], "countdown")
    (row,) = read_lines(tmp_path / "one.jsonl")
    label = row["label"]
    response = task.right_response(label)
    assert task.score(response + END, label).value == 1
    grader = task_of(row["datasource"])
    assert grader.score(response, label).value == 1
    assert grader.score(response + END, label).value == 1
    assert grader.score(response[:-1], label).value == 0
