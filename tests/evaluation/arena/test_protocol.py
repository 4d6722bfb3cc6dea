"""What a judge is told, and whether that and the rest is the official protocol."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from openrlhf_js.evaluation.arena import judge_prompts
from openrlhf_js.evaluation.arena.benches import EVERY, Bench, Category, Judge, bench_of
from openrlhf_js.evaluation.arena.files import Folder
from openrlhf_js.evaluation.arena.judge_prompts import (
    PROMPTS_FILE,
    Prompt,
    messages,
    own_prompt,
    prompt_of,
    prompts,
)
from openrlhf_js.evaluation.arena.protocol import add_run, followed, protocol_of, run_of
from openrlhf_js.evaluation.arena.settings import JudgeSettings
from openrlhf_js.evaluation.arena.standing import standing
from openrlhf_js.evaluation.arena.verdict import VERDICTS

SYSTEM, TEMPLATE = "the official system message", "{QUESTION}|{ANSWER_A}|{ANSWER_B}"


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    """An official bench whose texts are known here."""
    monkeypatch.setattr(judge_prompts, "TEMPLATE", digest(TEMPLATE))
    categories = {name: Category(name, "b", 1, digest(SYSTEM), "b") for name in ("x", "y")}
    return Bench("bench", categories, "v2.0", (Judge("j", 0.0, 100), Judge("k", 1.0, 200)))


def settings(**more: object) -> JudgeSettings:
    return JudgeSettings("j", 100, 0.0, **more)  # type: ignore[arg-type]


def fetched(folder: Folder, **systems: str) -> None:
    folder.root.mkdir(parents=True)
    kept = json.dumps({"template": TEMPLATE, "system": systems})
    (folder.root / PROMPTS_FILE).write_text(kept)


class TestPrompts:
    def test_texts_are_put_in_as_they_are(self) -> None:
        prompt = prompt_of(
            "s", "q {QUESTION} {x} {{ {ANSWER_A.__class__} {ANSWER_A}|{ANSWER_B}", ""
        )
        found = messages(prompt, "{ANSWER_A} \\1 {QUESTION}", "{ANSWER_B}{", "}")
        assert found == [
            {"role": "system", "content": "s"},
            {
                "role": "user",
                "content": "q {ANSWER_A} \\1 {QUESTION} {x} {{ {ANSWER_A.__class__} {ANSWER_B}{|}",
            },
        ]

    def test_the_same_message_as_upstream(self) -> None:
        """Which formats its template with Python's own `format`."""
        texts = {"QUESTION": "q{}", "ANSWER_A": "a", "ANSWER_B": "b"}
        prompt = prompt_of("s", TEMPLATE, "")
        assert messages(prompt, "q{}", "a", "b")[1]["content"] == TEMPLATE.format(**texts)

    def test_settings_come_before_what_was_fetched_and_that_before_ours(
        self, tmp_path: Path, bench: Bench
    ) -> None:
        folder = Folder(tmp_path, "bench")
        own = prompts(folder, bench, ["x"], settings())["x"]
        assert own == own_prompt("x") and not own.official
        fetched(folder, x=SYSTEM)
        found = prompts(folder, bench, ["x", "y"], settings())
        assert found["x"] == Prompt(SYSTEM, TEMPLATE, True, digest(f"{SYSTEM}\0{TEMPLATE}"))
        assert found["y"].system == own.system and not found["y"].official
        given = settings(system_prompts={EVERY: "mine", "y": "yours"})
        found = prompts(folder, bench, ["x", "y"], given)
        assert [found[each].system for each in "xy"] == ["mine", "yours"]
        assert [found[each].template for each in "xy"] == [TEMPLATE, TEMPLATE]

    def test_half_the_official_prompt_is_not_official(self, bench: Bench) -> None:
        official = bench.category("x").system_sha256
        assert prompt_of(SYSTEM, TEMPLATE, official).official
        assert not prompt_of(SYSTEM, TEMPLATE + "\n", official).official
        assert not prompt_of(SYSTEM + " ", TEMPLATE, official).official

    def test_ours_asks_for_every_verdict(self) -> None:
        for category in ("hard_prompt", "creative_writing"):
            system = own_prompt(category).system
            assert all(system.count(f"[[{verdict}]]") == 1 for verdict in VERDICTS)
        assert "yourself" in own_prompt("hard_prompt").system
        assert "yourself" not in own_prompt("creative_writing").system

    @pytest.mark.parametrize("text", ["{", "[]", '{"template": 1, "system": {}}', '{"system": {}}'])
    def test_what_was_fetched_is_broken(self, tmp_path: Path, bench: Bench, text: str) -> None:
        folder = Folder(tmp_path, "bench")
        folder.root.mkdir()
        (folder.root / PROMPTS_FILE).write_text(text)
        with pytest.raises(ValueError, match="fetch it again"):
            prompts(folder, bench, ["x"], settings())


class TestFollowed:
    @pytest.fixture
    def official(self, tmp_path: Path, bench: Bench) -> dict[str, Prompt]:
        fetched(Folder(tmp_path, "bench"), x=SYSTEM, y=SYSTEM)
        return prompts(Folder(tmp_path, "bench"), bench, ["x", "y"], settings())

    def test_to_the_letter(self, bench: Bench, official: dict[str, Prompt]) -> None:
        assert followed(bench, "j", "j-2025", 0.0, 100, official) == []
        assert followed(bench, "k", "k", 1.0, 200, official) == []
        for model in ("org/j", "j-2025-04-14", "j-pro", "j-pro-preview-03-25"):
            assert followed(bench, "j", model, 0.0, 100, official) == []

    def test_each_deviation(self, bench: Bench, official: dict[str, Prompt]) -> None:
        def told(judge: str, model: str, temperature: float | None, tokens: int) -> list[str]:
            return followed(bench, judge, model, temperature, tokens, official)

        assert told("z", "z", 0.0, 1) == ["the judge is z; officially j or k"]
        for model in ("q", "j-mini", "j-flash-2025", "j2"):
            assert told("j", model, 0.0, 100) == [f"the judge j is the model {model}"]
        assert told("k", "k", 0.5, 100) == [
            "the judge's temperature is 0.5; officially 1",
            "the judge may say 100 tokens; officially 200",
        ]
        assert told("j", "j", None, 100) == [
            "the judge's temperature is the endpoint's own; officially 0"
        ]
        other = bench._replace(
            categories={**bench.categories, "y": bench.categories["y"]._replace(baseline="c")}
        )
        told_ours = {"x": own_prompt("x"), "y": official["y"]}
        assert followed(other, "j", "j", 0.0, 100, told_ours) == [
            "the judge's prompt for x is not the official one",
            "the baseline of y is c; officially b",
        ]
        assert followed(bench_of("own", "b"), "j", "j", 0.0, 100, official) == [
            "own is no official benchmark"
        ]

    def test_the_record(self, tmp_path: Path, bench: Bench, official: dict[str, Prompt]) -> None:
        folder = Folder(tmp_path, "bench")
        assert protocol_of(folder, "j") is None
        only_x = {"x": official["x"]}
        first = run_of(bench, "j", "j", 0.0, 100, only_x)
        add_run(folder, first)
        add_run(folder, first)
        found = protocol_of(folder, "j")
        assert found is not None and found.runs == (first,)
        assert found.deviations == [] and not found.mixed
        # the other category, judged the same way, is no mixture
        add_run(folder, run_of(bench, "j", "j", 0.0, 100, {"y": official["y"]}))
        found = protocol_of(folder, "j")
        assert found is not None and len(found.runs) == 2 and not found.mixed
        add_run(folder, run_of(bench, "j", "j", 0.7, 100, only_x))
        found = protocol_of(folder, "j")
        assert found is not None and found.deviations == [
            "the judge's temperature is 0.7; officially 0",
            "its judgments were not all made in the same way",
        ]

    def test_a_category_answers_for_itself_alone(
        self, tmp_path: Path, bench: Bench, official: dict[str, Prompt]
    ) -> None:
        folder = Folder(tmp_path, "bench")
        other = bench._replace(
            categories={**bench.categories, "y": bench.categories["y"]._replace(baseline="c")}
        )
        told = {"x": official["x"], "y": own_prompt("y")}
        add_run(folder, run_of(other, "j", "j", 0.0, 100, told))
        found = protocol_of(folder, "j")
        assert found is not None and len(found.deviations) == 2
        assert found.of("x").deviations == []
        assert len(found.of("y").deviations) == 2
        assert found.of("z").runs == ()
        assert standing(folder, other, "x", ["j"]).followed is True
        assert standing(folder, other, "y", ["j"]).followed is False

    def test_another_prompt_is_a_mixture(
        self, tmp_path: Path, bench: Bench, official: dict[str, Prompt]
    ) -> None:
        folder = Folder(tmp_path, "bench")
        for told in (official["x"], own_prompt("x")):
            add_run(folder, run_of(bench, "j", "j", 0.0, 100, {"x": told}))
        found = protocol_of(folder, "j")
        assert found is not None and found.mixed

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "{}",
            '{"runs": 3}',
            '{"runs": [[]]}',
            '{"runs": [{}]}',
            '{"runs": [{"deviations": []}]}',
            '{"runs": [{"judge": "j", "model": "j", "temperature": 0, "max_tokens": [], '
            '"prompts": {}, "baselines": {}, "deviations": []}]}',
            '{"runs": [{"judge": "j", "model": [], "temperature": 0, "max_tokens": 1, '
            '"prompts": {}, "baselines": {}, "deviations": []}]}',
            '{"runs": [{"judge": "j", "model": "j", "temperature": 0, "max_tokens": 1, '
            '"prompts": {}, "baselines": {}, "deviations": [], "models": [1]}]}',
        ],
    )
    def test_a_broken_record(self, tmp_path: Path, text: str) -> None:
        folder = Folder(tmp_path, "bench")
        folder.judged_by("j").mkdir(parents=True)
        (folder.judged_by("j") / "protocol.json").write_text(text)
        with pytest.raises(ValueError, match="move it away"):
            protocol_of(folder, "j")
