"""The pretrained model after one run of its study, for the lab: makes FOLDER/trained.

.venv/bin/python scripts/studies/pretrained_trained.py [runs/smollm2 [--dtype float32 ...]]

Three to eight minutes. The run is that of rloo, seed 0, at 5e-6. docs/pretrained.md says what the
lab finds there.
"""

import sys
from pathlib import Path

from pretrained import STUDY

from openrlhf_js.cli.study import read as read_settings
from openrlhf_js.common.console import progress, say
from openrlhf_js.study.inline.engine import train_policy
from openrlhf_js.study.inline.prompts import policy_in
from openrlhf_js.study.running import prepare
from openrlhf_js.study.tasks import PRETRAINED

RUN = ("--estimators", "rloo", "--learning_rates", "5e-6", "--seeds", "1")


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/smollm2")
    settings = read_settings([str(STUDY), *RUN, "--out", str(folder), *sys.argv[2:]])
    prepare(settings)
    (run,) = settings.runs()
    policy = policy_in(settings.start_of(PRETRAINED), settings)
    with progress("training", 1, "runs") as bar:
        figures = train_policy(policy, run, settings)
        bar.advance()
    policy.model.save_pretrained(folder / "trained")
    policy.tokenizer.save_pretrained(folder / "trained")
    say(f"{folder / 'trained'}: pass@1 {100 * figures.pass1:.1f} %")


if __name__ == "__main__":
    main()
