"""Items and samples made by hand, and a small model whose random responses are sometimes right."""

from pathlib import Path
from typing import Any

from kit import qwen, read_lines, write_lines
from tokenizers import Tokenizer, models, pre_tokenizers
from tokenizers.decoders import Fuse
from transformers import PreTrainedTokenizerFast

from answer_graders.programs.files import write_json
from answer_graders.prompt_files import Example, example
from paired_eval.passk.benchmarks import uid_of
from paired_eval.passk.evaluate import COLUMNS
from paired_eval.passk.summary import FILE, FORMAT, Results, summarise
from paired_eval.sampling.complete import Sample

LETTERS = "abcdef"
TOKENS = ["<pad>", "<eos>", *LETTERS, *(rf"\boxed{{{n}}}" for n in (1, 2, 3)), " "]
CONTEXT = 24
MARKS = {"r": "correct", "w": "wrong", "v": "wrong", "n": "no_answer", "m": "malformed"}


def rows(count: int = 12) -> list[dict]:
    """Items whose answers are 1, 2 or 3."""
    return [
        {"input": LETTERS[i % 6] + LETTERS[i // 6], "label": str(i % 3 + 1), "datasource": "gsm8k"}
        for i in range(count)
    ]


def items(count: int = 12) -> dict[str, Example]:
    return {uid_of(item): item for item in map(example, rows(count))}


def group(item: int, marks: str, tokens: int | None = 5) -> list[Sample]:
    """Samples of one item: r is right, w and v are two wrong answers, n is none, m is malformed."""
    answers = {"r": "1", "w": "7", "v": "8", "n": None, "m": "?"}
    uid = [*items()][item]
    samples = []
    for draw, mark in enumerate(marks):
        sample = Sample(
            uid=uid,
            draw=draw,
            tokens=tokens,
            finish_reason="stop",
            status=MARKS[mark],
            answer=answers[mark],
            graded_by="1",
        )
        samples.append(sample)
    return samples


def write_results(
    folder: Path, model: str, tasks: dict[str, tuple[dict[str, Example], list[list[Sample]]]]
) -> Results:
    """Results of a model with their samples, by task: its items, and the samples of each."""
    results: Results = {"format": FORMAT, "model": model, "tasks": {}}
    for task, (asked, groups) in tasks.items():
        rows = []
        for uid, item in asked.items():
            rows.append({"uid": uid, **{name: getattr(item, name) for name in COLUMNS}})
        write_lines(folder / "samples" / f"{task}.items.jsonl", rows)
        samples = [sample._asdict() for group in groups for sample in group]
        write_lines(folder / "samples" / f"{task}.jsonl", [{"model": model}, *samples])
        settings = {"temperature": 1.0, "max_new_tokens": 2048}
        results["tasks"][task] = {"settings": settings, **summarise(asked, groups)}
    write_json(folder / FILE, results)
    return results


def write_model(folder: Path, seed: int = 0) -> Path:
    """A Hugging Face folder."""
    words = Tokenizer(models.WordLevel({token: i for i, token in enumerate(TOKENS)}))
    words.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    words.decoder = Fuse()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="<pad>", eos_token="<eos>"
    )
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
    ends = {"eos_token_id": 1, "bos_token_id": None, "max_position_embeddings": CONTEXT}
    qwen(seed, vocab_size=len(TOKENS), initializer_range=0.3, **sizes, **ends).save_pretrained(
        folder
    )
    tokenizer.save_pretrained(folder)
    return folder


def lines(path: Path) -> list[dict[str, Any]]:
    """The samples of a file."""
    return read_lines(path)[1:]
