"""The data sets of a run: rows as their files hold them, in upstream's order."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from datasets import Dataset
from kit import upstream_args, write_lines

from openrlhf_js.trainers.openrlhf.data_files import blend

STRATEGY = SimpleNamespace(
    args=upstream_args(data__label_key="label"), print=lambda *_: None, is_rank_0=lambda: False
)
LABELS = [
    1,
    "1",
    1.5,
    10**30,
    None,
    True,
    "2024-01-01",
    ["4", 4, [None]],
    {"answer": 4},
    {"other": {"nested": [1, {"deep": "1"}]}},
    {},
    [],
    "",
]


def labelled(path: Path, labels: list) -> str:
    return str(write_lines(path, [{"input": "?", "label": label} for label in labels]))


@pytest.mark.parametrize("as_folder", [False, True])
def test_labels_of_json_stay_what_they_are(tmp_path, as_folder):
    (tmp_path / "data").mkdir()
    path = labelled(tmp_path / "data" / "train.jsonl", LABELS)
    name = str(tmp_path / "data") if as_folder else path
    labels = [row["label"] for row in blend(name, None, STRATEGY)]
    assert json.dumps(labels) == json.dumps(LABELS)


@pytest.mark.parametrize("shares", [None, "0.7,0.2,0.1"])
def test_sets_are_joined_and_drawn_as_upstream_does(shares, tmp_path):
    from openrlhf.datasets.utils import blending_datasets

    tables = {}
    for name, count in (("a.jsonl", 4), ("b.jsonl", 9), ("c.parquet", 3)):
        tables[name] = Dataset.from_dict(
            {"input": ["?"] * count, "label": [f"{name} {row}" for row in range(count)]}
        )
    tables["a.jsonl"].to_json(tmp_path / "a.jsonl")
    tables["b.jsonl"].to_json(tmp_path / "b.jsonl")
    tables["c.parquet"].to_parquet(tmp_path / "c.parquet")
    names = ",".join(str(tmp_path / name) for name in tables)
    settings = {"seed": 3, "max_count": 7, "dataset_split": "train"}
    ours = blend(names, shares, STRATEGY, **settings)
    theirs = blending_datasets(names, shares, STRATEGY, **settings)
    assert list(ours) == list(theirs)
    assert ours.select(range(2)) == list(theirs)[:2]
