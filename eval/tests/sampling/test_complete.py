"""Filling a store: what is missing, what a server refuses, and a server that fails."""

from collections import Counter
from typing import NamedTuple

import pytest
from stub_judge import reply, serving

from answer_graders.programs.store import Store
from paired_eval.sampling.complete import (
    MOST_FAILURES,
    MOST_REFUSALS,
    Sample,
    complete,
    in_batches,
    missing,
    read_samples,
)
from paired_eval.sampling.endpoint import Endpoint, EndpointError, NoReply
from paired_eval.sampling.sampler import Parameters, Request, ServedSampler


class Job(NamedTuple):
    uid: str
    draw: int


JOBS = [Job(uid, draw) for uid in "abc" for draw in range(2)]


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "samples.jsonl", {"model": "m"}, ("uid", "draw")) as opened:
        yield opened


def grade(outcomes):
    return [{**job._asdict(), "text": text, "status": "correct"} for job, text in outcomes]


def fill(store, respond, retry_refused=False):
    """Completes the store two jobs at a time; returns the jobs that were worked on and are lost."""
    jobs = missing(store, JOBS, retry_refused)
    work = in_batches(2, lambda batch: [respond(job) for job in batch])
    return jobs, complete(store, jobs, work, grade, title="sampling")


def test_only_what_is_missing_is_worked_on(store):
    store.append(grade([(JOBS[3], "before")]))
    jobs, unanswered = fill(store, lambda job: f"{job.uid}{job.draw}")
    assert jobs == [JOBS[0], JOBS[1], JOBS[2], JOBS[4], JOBS[5]]
    assert unanswered == []
    texts = [store.records[job]["text"] for job in JOBS]
    assert texts == ["a0", "a1", "b0", "before", "c0", "c1"]
    assert missing(store, JOBS) == []
    store.append(grade([(JOBS[0], "new")]))  # the last record of a sample counts
    assert [sample.text for sample in read_samples(store.path)][:3] == ["before", "new", "a1"]


def test_refusals_are_recorded_and_what_has_no_reply_stays_missing(store):
    def respond(job):
        if job.uid == "a":
            return NoReply("too long", refused=True)
        if job.uid == "b":
            return NoReply("slow")
        return "text"

    _, unanswered = fill(store, respond)
    assert [(job, str(reply)) for job, reply in unanswered] == [
        (JOBS[2], "slow"),
        (JOBS[3], "slow"),
    ]
    assert missing(store, JOBS) == JOBS[2:4]
    assert missing(store, JOBS, retry_refused=True) == JOBS[:4]
    refused = Sample("a", 0, finish_reason="refused", refused="too long")
    assert refused in read_samples(store.path)


def asked(request):
    """The text of a request's prompt."""
    return request["messages"][0]["content"]


class Run:
    """Fills a store, in a file of its own, from a real server; each call resumes."""

    def __init__(self, path, served):
        self.path = path
        self.served = served

    def __call__(self, prompts, draws=1, concurrency=1):
        """Returns the prompts that were sent, and how many jobs are left without a record."""
        wanted = []
        for number in range(prompts):
            messages = [{"role": "user", "content": f"p{number}"}]
            wanted += [Request(f"p{number}", number, draw, messages) for draw in range(draws)]
        sent_before = len(self.served.requests)
        parameters = Parameters(temperature=1.0, top_p=1.0, max_new_tokens=6, seed=3)
        with Store(self.path, {"model": "m"}, ("uid", "draw")) as store:
            sampler = ServedSampler(Endpoint(self.served.url, "m"), concurrency)
            complete(
                store,
                missing(store, wanted),
                work=lambda requests, keep: sampler.run(requests, parameters, keep),
                grade=lambda results: [
                    {"uid": job.uid, "draw": job.draw, "text": result.text}
                    for job, result in results
                ],
                title="sampling",
            )
            left = len(missing(store, wanted))
        return [asked(request) for request in self.served.requests[sent_before:]], left

    def records(self):
        return read_samples(self.path)

    def is_without_repeats(self):
        """Whether each sample has one line."""
        return len(self.path.read_bytes().splitlines()) == 1 + len(self.records())


GOOD = reply("yes")
REFUSAL = (400, b"content_filter")
DOWN = (503, b"down", {"x-should-retry": "false"})


@pytest.fixture
def run(tmp_path):
    with serving(lambda *_: GOOD) as served:
        yield Run(tmp_path / "samples.jsonl", served)


@pytest.mark.parametrize("status", [400, 403])
def test_a_server_that_refuses_everything_ends_the_run_early_and_nothing_is_recorded(run, status):
    run.served.answer = lambda *_: (status, b"no such setting")
    for _ in range(2):
        with pytest.raises(ValueError, match=rf"none was answered; .* {status}: no such setting"):
            run(10 * MOST_REFUSALS, concurrency=4)
    assert 2 * MOST_REFUSALS <= len(run.served.requests) < 3 * MOST_REFUSALS
    with pytest.raises(ValueError, match="3 requests were refused and none was answered"):
        run(3)
    assert not run.path.exists()  # so that the next call may have another model


def test_refusals_before_the_first_reply_are_recorded_once_it_comes(run):
    run.served.answer = lambda request, _: GOOD if asked(request) == "p3" else REFUSAL
    sent, left = run(5)
    assert (len(sent), left) == (5, 0)
    assert [sample.refused is None for sample in sorted(run.records())] == [0, 0, 0, 1, 0]
    assert run(5) == ([], 0)
    assert run.is_without_repeats()


def test_many_draws_of_a_few_refused_prompts_are_not_a_server_that_refuses_everything(run):
    run.served.answer = lambda request, _: GOOD if asked(request) == "p2" else REFUSAL
    sent, left = run(3, draws=MOST_REFUSALS)
    assert sent[:3] == ["p0", "p1", "p2"]
    assert (len(sent), left) == (3 * MOST_REFUSALS, 0)


def test_what_is_refused_after_an_earlier_run_had_replies_does_not_stay_open(run):
    run(2)
    run.served.answer = lambda *_: REFUSAL
    sent, left = run(2 * MOST_REFUSALS, concurrency=4)
    assert (len(sent), left) == (2 * MOST_REFUSALS - 2, 0)
    assert run(2 * MOST_REFUSALS) == ([], 0)


def test_a_server_that_no_longer_replies_ends_the_run_and_the_same_call_resumes(run):
    run.served.answer = lambda _, number: [GOOD, REFUSAL, GOOD][number - 1] if number < 4 else DOWN
    with pytest.raises(
        EndpointError, match=r"8 requests in a row had no reply.*answered 503: down"
    ):
        run(20)
    assert len(run.served.requests) == 3 + MOST_FAILURES
    assert len(run.records()) == 3
    run.served.answer = lambda *_: GOOD
    sent, left = run(20, concurrency=4)
    assert Counter(sent) == Counter(f"p{number}" for number in range(3, 20))
    assert left == 0
    assert run.is_without_repeats()


def test_failures_with_replies_between_do_not_end_the_run(run):
    """Every third request is answered, and every third one refused."""
    run.served.answer = lambda _, number: [DOWN, REFUSAL, GOOD][number % 3]
    sent, left = run(9 * MOST_FAILURES)
    assert len(sent) == 9 * MOST_FAILURES
    assert left == 3 * MOST_FAILURES


def test_a_refusal_is_no_failure_but_does_not_hide_one(run):
    run.served.answer = lambda _, number: [DOWN, REFUSAL][number % 2] if number > 1 else GOOD
    with pytest.raises(EndpointError, match="8 requests in a row had no reply"):
        run(100)
    assert len(run.served.requests) == 2 * MOST_FAILURES
