"""What docs/memory.md says of several sizes: prints regrets and differences, draws the picture."""

import json
import lzma
from collections import defaultdict
from pathlib import Path
from statistics import fmean

from openrlhf_js.report import style
from openrlhf_js.stats import paired_difference
from openrlhf_js.study import analysis, page
from openrlhf_js.study.values import chosen_runs

HERE = Path(__file__).parent
SHAPES = {"memory": [(64, 1), (32, 2), (32, 4), (32, 8)], "memory1024": [(64, 2)]}
FIVE_SEEDS = range(5)  # of all sizes but 32 x 2, where there are ten


def records(name, shape):
    """Those of a size with whole sets of seeds: no rate of 8e-4, and no `js` at 32 x 8."""
    with lzma.open(HERE / f"{name}.jsonl.xz", "rt") as file:
        runs = [json.loads(line) for line in file][1:]
    for run in runs:
        ours = (run["prompts"], run["responses"]) == shape and run["learning_rate"] < 5e-4
        whole = shape != (32, 8) or run["estimator"] != "js"
        if ours and whole and (shape == (32, 2) or run["seed"] in FIVE_SEEDS):
            yield run


drawn = []
for name, shapes in SHAPES.items():
    for shape in shapes:
        runs = [*records(name, shape)]
        findings = analysis.analyse(runs, "js_plus")
        drawn += runs if shape in ((32, 2), (32, 4), (64, 2)) else []
        print(f"{name}, {shape[0]} x {shape[1]}")
        for regret in findings.regret:
            print(f"  {regret.estimator:12} {regret.mean:4.1f} {regret.worst:5.1f}")
        by_seed = defaultdict(lambda: defaultdict(list))
        for run in chosen_runs(runs):
            sign = {"js_memory": 1, "js_plus": -1}.get(run["estimator"])
            if sign:
                by_seed[run["mix"]][run["seed"]].append(sign * run["pass1"])
        for mix, seeds in by_seed.items():
            gaps = [200 * fmean(each) for each in seeds.values()]
            gap = paired_difference(gaps, [0] * len(gaps))
            print(
                f"  js_memory - js_plus, {mix}: {gap.value:+.1f} ({gap.low:.1f} to {gap.high:.1f})"
            )
findings = analysis.analyse(drawn, "rloo")
for regret in findings.regret:
    cells = f"{len(regret.points)} cells"
    print(f"{cells}: {regret.estimator:12} {regret.mean:4.1f} {regret.worst:5.1f}")
style.save_png(page.regret_picture(findings), HERE.parents[1] / "docs/images/memory.png")
