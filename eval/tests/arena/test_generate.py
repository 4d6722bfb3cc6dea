"""Answers while they are made: resumed, refused, recorded and exported."""

import pytest
from judged_bench import read_lines, write_bench, write_lines

from paired_eval.arena.data import Folder, read_answers, read_questions
from paired_eval.arena.generate import generate
from paired_eval.sampling.endpoint import NoReply
from paired_eval.sampling.sampler import Parameters, Sampled

PARAMETERS = Parameters(0.0, 1.0, 10, 0)


class Fake:
    """A sampler that says what `say` returns, one request at a time."""

    name = "fake"
    sha = "1"
    same_model = False

    def __init__(self, say):
        self.say = say
        self.asked = []
        self.identity = {"model": "f", "model_sha256": self.sha}

    def make_room(self, requests, parameters):
        pass

    def run(self, requests, parameters, on_samples):
        for request in requests:
            roles = [message["role"] for message in request.messages]
            self.asked.append((request.number, roles))
            reply = self.say(request.number)
            if isinstance(reply, str):
                reply = Sampled(
                    text=reply,
                    thinking="",
                    finish_reason="stop",
                    tokens=len(reply),
                    seed=0,
                )
            on_samples([(request, reply)])


@pytest.fixture
def place(tmp_path):
    write_bench(tmp_path, 3, ())
    folder = Folder(tmp_path, "own")

    def run(say, parameters=PARAMETERS, wanted=None, **named):
        questions = read_questions(folder)
        sampler = Fake(say)
        generated = generate(
            folder=folder,
            name="m",
            sampler=sampler,
            questions=questions,
            wanted={uid: questions[uid] for uid in wanted or questions},
            parameters=parameters,
            count_tokens=len,
            **named,
        )
        texts = {sample.uid: sample.text for sample in generated.answers}
        return texts | generated.failed, generated.still_open, sampler.asked

    run.folder = folder
    return run


def test_a_stop_loses_nothing_and_the_same_call_resumes(place):
    def stopped(number):
        if number == 2:
            raise KeyboardInterrupt
        return f"<think>hm</think>answer {number}"

    with pytest.raises(KeyboardInterrupt):
        place(stopped)
    assert list(read_answers(place.folder, "m")) == ["q0", "q1"]
    texts, still_open, asked = place(lambda number: f"answer {number}")
    assert asked == [(2, ["user"])]  # its number is its own, whatever else is asked
    assert sorted(texts) == ["q0", "q1", "q2"]
    assert not still_open
    rows = read_lines(place.folder.answers("m"))
    assert [row["uid"] for row in rows] == ["q0", "q1", "q2"]
    content = rows[0]["messages"][-1]["content"]
    assert content == {"answer": "answer 0", "thought": "hm"}
    assert rows[0]["metadata"]["token_len"] == len("answer 0")
    assert list(rows[0]["metadata"]) == ["token_len", "header_count", "list_count", "bold_count"]
    assert place(pytest.fail)[2] == []


def test_a_stop_before_the_first_answer_leaves_nothing_behind(place):
    def stopped(number):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        place(stopped)
    assert len(place(lambda number: "a")[0]) == 3


def test_what_cannot_be_answered_is_recorded_and_what_was_lost_is_open(place):
    def say(number):
        if number == 2:
            return "yes"
        return NoReply(["too long", "time-out"][number], refused=number == 0)

    texts, still_open, _ = place(say, system="be brief")
    assert texts == {"q0": "too long", "q2": "yes"}
    assert still_open == {"q1": "time-out"}
    texts, _, asked = place(lambda number: "", system="be brief")
    assert asked == [(1, ["system", "user"])]
    assert texts["q1"] == ""
    texts, _, asked = place(lambda number: "now", system="be brief", retry_failed=True)
    assert asked == [(0, ["system", "user"])]
    assert texts["q0"] == "now"
    assert len(texts) == 3


def test_a_refused_question_whose_text_has_changed_is_asked_again(place):
    def say(number):
        return NoReply("too long", refused=True) if number == 0 else "yes"

    assert place(say)[0]["q0"] == "too long"
    assert place(pytest.fail)[2] == []
    path = place.folder.questions
    rows = read_lines(path)
    rows[0]["prompt"] = "a shorter one"
    write_lines(path, rows)
    texts, _, asked = place(lambda number: "now")
    assert (texts["q0"], asked) == ("now", [(0, ["user"])])


def test_other_settings_and_other_programs_are_refused(place):
    place(lambda number: "a", wanted=["q0"])
    with pytest.raises(ValueError, match=r"temperature: 0\.0 there, 1\.0 now"):
        place(pytest.fail, PARAMETERS._replace(temperature=1.0))
    (place.folder.root / "generation" / "m.jsonl").unlink()
    write_lines(place.folder.answers("m"), [])
    with pytest.raises(ValueError, match=r"another program made .* another --name"):
        place(pytest.fail)
