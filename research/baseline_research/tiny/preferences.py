"""Preferences for the task of echoing three letters, `hea=` -> `hea`.

The response with more letters in their right places is chosen.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

from baseline_research.tiny.record import END

LETTERS = "abcdefgh"
TOKENS = ("=", *LETTERS)  # what prompts and responses are written with
ASKED = 3  # letters in a prompt
LONGEST = 4  # letters in a response
MAX_NEW_TOKENS = LONGEST + 1
HELD_OUT_PROMPTS = 128  # a quarter of all


def pairs(count: int, held_out: bool) -> Iterator[dict[str, str]]:
    """Distinct rows of a preference file, for training prompts or for held-out ones."""
    prompts = ["".join(letters) for letters in product(LETTERS, repeat=ASKED)]
    random.Random(0).shuffle(prompts)
    prompts = prompts[:HELD_OUT_PROMPTS] if held_out else prompts[HELD_OUT_PROMPTS:]
    rng = random.Random(int(held_out))
    seen: set[tuple[str, str, str]] = set()
    while len(seen) < count:
        letters = rng.choice(prompts)
        first = _response(letters, rng)
        second = _response(letters, rng)
        advantage = _right_places(letters, first) - _right_places(letters, second)
        chosen, rejected = (first, second) if advantage > 0 else (second, first)
        if advantage == 0 or (letters, chosen, rejected) in seen:
            continue
        seen.add((letters, chosen, rejected))
        yield {
            "prompt": f"{letters}=",
            "chosen": chosen + END,
            "rejected": rejected + END,
            "subset": f"{len(set(letters))} letters",
        }


def _response(letters: str, rng: random.Random) -> str:
    """A response of any quality and length."""
    share_right = rng.random()
    response = [letter if rng.random() < share_right else rng.choice(LETTERS) for letter in letters]
    padded = response + rng.choices(LETTERS, k=LONGEST)
    return "".join(padded[: rng.randint(1, LONGEST)])


def _right_places(letters: str, response: str) -> int:
    return sum(asked == answered for asked, answered in zip(letters, response, strict=False))


def write_reward_model(folder: Path, seed: int = 0, tokens: Sequence[str] = TOKENS) -> None:
    """Writes a reward model with random weights, in the layout that OpenRLHF's training saves."""
    import torch
    from safetensors.torch import load_file, save_file

    from baseline_research.tiny.model import make_model, make_tokenizer, save

    tokenizer = make_tokenizer(tokens)
    model = make_model(tokenizer, seed)
    save(model, tokenizer, folder)
    width = model.config.hidden_size
    tensors = load_file(folder / "model.safetensors")
    del tensors["lm_head.weight"]
    tensors["score.weight"] = torch.randn(1, width).to(torch.bfloat16)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config |= {"architectures": ["RewardModel"], "value_head_prefix": "score"}
    config |= {"mean": 0.0, "std": width**0.5}  # of the head's output for normalised inputs
    (folder / "config.json").write_text(json.dumps(config))
