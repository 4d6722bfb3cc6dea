"""The page and files of scores: nothing foreign runs, and nothing is lost."""

import base64
import hashlib
import json
import shutil
import subprocess
from collections import Counter
from html import unescape
from html.parser import HTMLParser

import pytest
from judged_bench import answer_row, judgment_row, random_rows, write_judged, write_lines

from openrlhf_js.evaluation.arena.board import board
from openrlhf_js.evaluation.arena.data import Folder
from openrlhf_js.evaluation.arena.pool import load
from openrlhf_js.evaluation.arena.score import Plan
from openrlhf_js.report import style
from openrlhf_js.report.arena import cells, image, markdown, page, questions

HOSTILE = (
    "</script><script>top.ran = 1</script><img src=x onerror=top.ran=2>&amp;\u2028\x00{{7*7}}"
    "[a](javascript:top.ran=3) ![b](http://h/b.png) <javascript:top.ran=4> [c]: http://h 'd'"
)


@pytest.fixture
def bench(tmp_path):
    """Two models on four questions, one judgment incomplete: pools and boards."""
    rows = random_rows(2, 4)
    rows[0] = judgment_row("q0", None, "failed", model="m0")
    write_judged(tmp_path, rows)
    pools = load(Folder(tmp_path, "own"), ["j"])
    return pools, [board(pool, ["j"], Plan()) for pool in pools]


class Parsed(HTMLParser):
    """The elements of a page, its script, and its text."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.script, self.text = [], "", ""
        self._in_script = False
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        self._in_script = tag == "script"

    def handle_endtag(self, tag):
        self._in_script = False

    def handle_data(self, data):
        if self._in_script:
            self.script += data
        else:
            self.text += data


def test_the_page_holds_every_text_and_what_the_filters_look_for(bench):
    found = Parsed(page(*bench))
    for text in ("prompt of q0", "m0 says q1.", "m1 says q3.", "base says q2.", "because"):
        assert text in found.text
    assert "Not held, or the judge's call failed." in found.text
    options = [a.get("value") for tag, a in found.elements if tag == "option"]
    assert options[:3] == ["", "0", "1"]
    marks = [a for tag, a in found.elements if tag == "span" and "data-verdict" in a]
    assert len(marks) == 8 and {each["data-judge"] for each in marks} == {"0"}
    first = questions(bench[0], ["j"], ["m0"])[0].models[0].judged["j"]
    assert (first.signs, first.kind) == ("? ?", "a verdict is missing")


@pytest.mark.parametrize(
    ("margins", "signs", "kind"),
    [
        ((2, 1), "++ +", "the model wins"),
        ((-1, 1), "\u2212 +", "the games name different winners"),
        ((0, -1), "= \u2212", "the baseline wins"),
        ((0, 0), "= =", "a tie"),
        ((None, -2), "? \u2212\u2212", "a verdict is missing"),
    ],
)
def test_a_judgment_is_marked_as_the_model_fared(tmp_path, margins, signs, kind):
    write_judged(tmp_path, [judgment_row("q0", *margins), judgment_row("q1", 1, 1)])
    pools = load(Folder(tmp_path, "own"), ["j"])
    judged = questions(pools, ["j"], ["m"])[0].models[0].judged["j"]
    assert (judged.signs, judged.kind) == (signs, kind)


def test_nothing_but_our_script_can_run(bench):
    text = page(*bench)
    found = Parsed(text)
    policy = next(a["content"] for tag, a in found.elements if a.get("http-equiv"))
    digest = base64.b64encode(hashlib.sha256(found.script.encode()).digest()).decode()
    assert policy == (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "img-src data:"
    )
    assert text.index("Content-Security-Policy") < text.index("</head>") < text.index("<script")
    links = [a[name] for _, a in found.elements for name in ("src", "href") if name in a]
    assert links[0] == "#questions"
    assert links[1:] and all(link.startswith("data:image/svg+xml") for link in links[1:])


def test_hostile_texts_stay_texts(tmp_path):
    name = "<script>alert('x')<$"
    rows = [judgment_row(HOSTILE, 1, -1, model=name), judgment_row("q1", 1, 1, model=name)]
    rows[0]["games"][0]["judgment"]["answer"] = HOSTILE
    folder = Folder(tmp_path, "own")
    write_judged(tmp_path, rows)
    write_lines(folder.answers(name), [answer_row(HOSTILE, name, HOSTILE)])
    pools = load(folder, ["j"])
    text = page(pools, [board(pools[0], ["j"], Plan())], [HOSTILE])
    parsed = Parsed(text)
    tags = Counter(tag for tag, _ in parsed.elements)
    assert (tags["script"], tags["img"], tags["a"]) == (1, 1, 1)
    for _, attributes in parsed.elements:
        assert not any(attribute.startswith("on") for attribute in attributes)
    assert "ran" not in parsed.script
    assert "\x00" not in text
    assert parsed.text.count(HOSTILE.replace("\x00", "\ufffd")) >= 2
    assert HOSTILE[:30] in parsed.text  # shown, not run
    assert name in parsed.text


def test_markdown_is_rendered_and_bounded():
    text = "# T\n**b** `c`\n\n|x|\n|-|\n|1|\n\n```x' onload=y\n<i>\n```"
    found = markdown(text)
    for tag in ("<h1>T", "<strong>b", "<code>c", "<td>1", "&lt;i&gt;"):
        assert tag in found
    assert "onload" not in found
    assert markdown("*" * 60_000) == f'<pre class="plain">{"*" * 60_000}</pre>'


# Shows the page in frames of two widths, does what a reader does, and writes down what it finds.
READER = """<pre></pre><script>
const looks = [1280, 390].map(width => new Promise(done => {
  const frame = document.createElement("iframe");
  Object.assign(frame, { width, height: 900, src: "page.html" });
  frame.onload = () => {
    const page = frame.contentDocument, at = id => page.getElementById(id);
    for (const each of page.querySelectorAll("details")) {
      each.open = true;
      each.style.contentVisibility = "visible"; // or what is out of sight has no size
    }
    const parts = [page.documentElement, ...page.querySelectorAll(".question")];
    const overflow = Math.max(...parts.map(part => part.scrollWidth - part.clientWidth));
    const table = page.querySelector(".whole table");
    const models = () => [...table.rows].slice(1, 4).map(row => row.cells[0].textContent);
    const name = table.rows[0].cells[0], seen = [];
    for (const event of [new Event("click"), new KeyboardEvent("keydown", { key: "Enter" })]) {
      name.dispatchEvent(event);
      seen.push(models());
    }
    at("search").value = "says q1."; at("search").oninput();
    const look = () => [overflow, seen, at("model").selectedIndex, at("count").textContent];
    setTimeout(() => done(look()), 900);
  };
  document.body.append(frame);
}));
Promise.all(looks).then(all => document.querySelector("pre").textContent = JSON.stringify(
  { all, ran: window.ran ?? null }));
</script>"""


def test_a_browser_shows_thirty_models_at_both_widths(tmp_path):
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if not chromium:
        pytest.skip("the page is not looked at: there is no Chromium (apt-get install chromium)")
    rows = random_rows(30, 3)
    for row in rows:
        row["games"][0]["judgment"]["answer"] = HOSTILE
    write_judged(tmp_path, rows, characters=400)
    pools = load(Folder(tmp_path, "own"), ["j"])
    (tmp_path / "page.html").write_text(page(pools, [board(pools[0], ["j"], Plan())], [HOSTILE]))
    (tmp_path / "reader.html").write_text(READER)
    words = ["--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files"]
    words += ["--virtual-time-budget=20000", "--dump-dom", f"file://{tmp_path}/reader.html"]
    shown = subprocess.run([chromium, *words], capture_output=True, text=True, timeout=60).stdout
    found = json.loads(unescape(shown.partition("<pre>")[2].partition("</pre>")[0]))
    assert found["ran"] is None
    sorted_by_name = [["m29", "m28", "m27"], ["base", "m0", "m1"]]
    assert found["all"] == [[0, sorted_by_name, 1, "1 of 3 questions"]] * 2


def test_thinking_and_missing_answers(bench):
    folder = bench[0][0].folder
    lines = [answer_row("q0", "m0", "answer")]
    lines[0]["messages"][-1]["content"]["thought"] = "let me think"
    write_lines(folder.answers("m0"), lines)
    found = Parsed(page(*bench))
    assert found.text.count("let me think") == 1
    assert found.text.count("No answer is in the files.") == 3


def test_cells_and_rows(bench):
    pools, boards = bench
    cells_of_model = next(row for row in cells(boards[0]) if row["model"] == "m0")
    assert cells_of_model["questions"] == "3 of 4"
    rows = json.loads(json.dumps(boards[0].rows, allow_nan=False))
    assert {"ci_low", "deviations", "much_weight", "worst_case_low"} <= set(rows[0])
    controlled = board(pools[0], ["j"], Plan(style_control="all"))
    assert controlled.title == "all, judged by j, style controlled"
    assert "without control" in cells(controlled)[0]


def test_pictures_are_alike_and_hold_their_titles(bench):
    pools, boards = bench
    controlled = board(pools[0], ["j"], Plan(style_control="all"))
    all_boards = [*boards, controlled]
    images = [image(one_board, all_boards) for one_board in all_boards]
    assert "m0" in style.svg(images[0])
    again = image(controlled, all_boards)
    assert style.svg(again) == style.svg(images[-1])
    first_domain, *domains = [
        style.specification(drawn)["layer"][2]["encoding"]["x"]["scale"]["domain"]
        for drawn in images
    ]
    assert all(domain == first_domain for domain in domains)
    long_title = "judged by " + "somebody + " * 20
    long_image = image(controlled._replace(title=long_title), all_boards)
    lines = style.specification(long_image)["title"]["text"]
    assert len(lines) > 1
    assert max(map(len, lines)) <= 64  # what the picture holds
