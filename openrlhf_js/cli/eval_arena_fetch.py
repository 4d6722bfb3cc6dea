"""`openrlhf-js eval arena fetch`: questions, baseline answers and the judge's texts."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rich.console import Console

from openrlhf_js.cli.eval_run import guarded
from openrlhf_js.cli.parser import Parser
from openrlhf_js.cli.saying import say

PROGRAM = "openrlhf-js eval arena fetch"
DESCRIPTION = """\
Get a benchmark into a folder: its questions, the answers that others are compared with, and the
texts that the official judge is given. Then say what is there, and what is missing.

From the Hugging Face hub, or from a folder that you have: a clone of the official repository with
its data, or a download of the data set. What is in the folder already is never overwritten.
"""
EXAMPLES = """\
examples:
  openrlhf-js eval arena fetch --data data --bench arena-hard-v2.0
  openrlhf-js eval arena fetch --data data --bench arena-hard-v0.1 --from ~/arena-hard-auto
  openrlhf-js eval arena fetch --data data --bench arena-hard-v2.0 --models qwq-32b \\
      --judgments gpt-4.1                                    more models, and their judgments

It leaves in data/BENCH, laid out as in the official repository:
  question.jsonl, model_answer/MODEL.jsonl, model_judgment/JUDGE/MODEL.jsonl
  judge_prompts.json         what the official judge is told; `judge` takes it from here
  fetched.json               where each file is from, its sha256, and whether all is there

exit status: 0 all is there, 1 something is missing or the disk fails, 2 what was given cannot be
used or the hub cannot be reached, 130 stopped
"""


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Reads the command line; leaves with status 2 and one line if it is wrong."""
    parser = Parser(prog=PROGRAM, description=DESCRIPTION, epilog=EXAMPLES)
    parser.add_argument(
        "--data", type=Path, default=Path("data"), metavar="DIR", help="default data"
    )
    parser.add_argument(
        "--bench", default="arena-hard-v2.0", metavar="NAME", help="default %(default)s"
    )
    parser.add_argument(
        "--from", dest="source", type=Path, metavar="DIR", help="a folder instead of the hub"
    )
    parser.add_argument("--revision", metavar="REV", help="branch, tag or commit on the hub")
    parser.add_argument(
        "--models", nargs="+", default=[], metavar="MODEL", help="get these models' answers too"
    )
    parser.add_argument(
        "--judgments", nargs="+", default=[], metavar="JUDGE", help="get their judgments too"
    )
    parser.add_argument(
        "--baseline", default="", metavar="MODEL", help="of a benchmark of your own"
    )
    args = parser.parse_args(argv)
    if args.revision and args.source:
        parser.error("--revision is of the hub, and --from is a folder: give one of them")
    return args


def main(argv: list[str] | None = None) -> int:
    """Runs the program from its command line.

    Args:
        argv: the arguments, without the program's name; the process's own if None.

    Returns:
        The exit status: 0 all is there, 1 something is missing or the disk fails, 2 what was given
        cannot be used or the hub cannot be reached, 130 stopped. Wrong flags exit with 2.
    """
    args = parse(argv)
    kept = "what was fetched is kept, and the same command gets the rest"
    return guarded(PROGRAM, lambda: fetch(args, Console(), Console(stderr=True)), kept)


def fetch(args: argparse.Namespace, console: Console, errors: Console) -> int:
    """Gets what the flags ask for, says what is there, and returns the exit status."""
    from openrlhf_js.evaluation.arena import fetch as fetching
    from openrlhf_js.evaluation.arena.benches import bench_of
    from openrlhf_js.evaluation.arena.fetched import check, record
    from openrlhf_js.evaluation.arena.files import Folder
    from openrlhf_js.evaluation.arena.hub import hub_source
    from openrlhf_js.evaluation.arena.judge_prompts import prompts
    from openrlhf_js.evaluation.arena.records import file_name
    from openrlhf_js.evaluation.arena.settings import JudgeSettings

    def warn(line: str) -> None:
        say(errors, line)

    bench = bench_of(args.bench, args.baseline)
    folder = Folder(args.data, bench.name)
    if args.source:
        source = fetching.folder_source(args.source.expanduser().resolve(), bench.name)
    else:
        say(errors, f"asking the hub for {fetching.HUB} ...")
        source = hub_source(revision=args.revision)
    names = fetching.wanted_names(bench, args.models)
    missing = []
    for judge in args.judgments:
        found = fetching.judgment_names(source, bench.name, file_name(judge))
        if args.models:
            wanted = {f"{file_name(model)}.jsonl" for model in args.models}
            found = [name for name in found if name.rsplit("/", 1)[1] in wanted]
        if not found:
            missing.append(f"{source.name} has no such judgments of {judge}")
        names += found
    say(errors, f"getting {len(names)} files from {source.name} ...")
    hashes = fetching.copy_files(source, folder, names, warn)
    texts = fetching.judge_texts(source, bench, warn)
    fetching.write_texts(folder, bench, texts, source.name, warn)
    found_there = check(folder, bench, warn)
    record(folder, source.name, hashes, not found_there.missing)
    needed = fetching.wanted_names(bench, [])  # which the check looks at
    paths = [folder.root / name for name in names if name not in needed]
    missing += [f"{path} is not there" for path in paths if not path.exists()]
    missing += found_there.missing
    for name, count in found_there.questions.items():
        say(console, f"{count} questions of {name}, compared with {bench.category(name).baseline}")
    own = JudgeSettings(judge_model="any", max_tokens=1)
    told = prompts(folder, bench, found_there.questions, own)
    unofficial = [name for name, prompt in told.items() if not prompt.official]
    if unofficial:
        say(
            console,
            f"the official judge's texts for {', '.join(unofficial)} were not found: judging takes "
            "this project's own, and says so. A clone of the official repository has them (--from)",
        )
    elif told:
        say(console, "the official judge's texts: there")
    for line in missing:
        say(console, f"missing: {line}")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
