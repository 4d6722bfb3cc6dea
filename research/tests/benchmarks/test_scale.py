import logging
from pathlib import Path

import pytest


@pytest.fixture
def scale(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))  # as for a script
    import scale

    yield scale
    logging.disable(logging.NOTSET)


def test_the_controllers_parts_are_those_of_the_run(scale, monkeypatch, capsys):
    assert scale.seconds_to_send_a_tokenizer(words=10_000) > 0
    monkeypatch.setattr(scale, "seconds_to_send_a_tokenizer", lambda: 0.1)
    monkeypatch.setattr(scale, "ROUNDS", 1)
    sizes = {"short": scale.RunSize(128, 1024, 64, 8, 1, 60), "long": None}
    sizes["long"] = sizes["short"]._replace(tokens=256)
    scale.main(sizes)
    _, table = capsys.readouterr().out.split("---:|\n")
    costs = {}
    for row in table.splitlines():
        title, *cells = [cell.strip() for cell in row.strip("|").split("|")]
        costs[title] = [float(cell.replace(",", "")) for cell in cells]
    assert len(costs) == len(scale.TITLES) + 3
    assert all(min(cells) > 0 for cells in costs.values())
    short, long = costs["gigabytes through Ray"]
    assert 3 < long / short < 4  # it grows with the tokens
    sent = sum(
        costs[title][0] for name, title in scale.TITLES.items() if name not in ("GB", "loop")
    )
    assert costs[scale.ALL_OF_IT][0] == pytest.approx(sent, rel=0.05)
