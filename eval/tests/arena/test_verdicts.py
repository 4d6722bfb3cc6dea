"""How judges end, and what either rule makes of it: without quotations, and as upstream."""

import time

import pytest

from paired_eval.arena.verdicts import has_label, official_verdict, unquoted_verdict

SCALE = """1. Assistant A is significantly better: [[A>>B]]
2. Assistant A is slightly better: [[A>B]]
3. Tie, relatively the same: [[A=B]]
4. Assistant B is slightly better: [[B>A]]
5. Assistant B is significantly better: [[B>>A]]
"""
SAME = "the same"  # by the official rule
ENDINGS = [  # what the judge writes, the verdict that it does not quote, and the official one
    # one label, in many dresses
    ("My final verdict is tie: [[A=B]]", "A=B", SAME),
    ("Assistant B is far better.\n\n[[B>>A]]", "B>>A", SAME),
    ("[[A>B]]\n\nAssistant A is more complete.", "A>B", SAME),
    ("[[b>>a]].", "B>>A", SAME),
    ("A gives the more complete answer [[A>B]] in fewer words.", "A>B", SAME),
    ("**Final Verdict:** **[[A>B]]**", "A>B", SAME),
    ("### Verdict\n\n**[[B>A]]**", "B>A", SAME),
    ("My final verdict is `[[A>B]]`.", "A>B", SAME),
    ("My final verdict is:\n\n```\n[[B>>A]]\n```", "B>>A", SAME),
    ("```text\n[[A>>B]]\n```", "A>>B", SAME),
    ("**Final verdict:**\n\n> [[A>B]]", "A>B", SAME),
    ('{"reason": "A is shorter.", "verdict": "[[A>B]]"}', "A>B", SAME),
    (r"\boxed{[[B>A]]}", "B>A", SAME),
    ("<verdict>[[A>B]]</verdict>", "A>B", SAME),
    ("Final verdict: [[A<<B]]", "B>>A", SAME),
    ("My final verdict: [A>B]", "A>B", SAME),
    ("[[A>B]] [[A>B]]", "A>B", SAME),
    ("Therefore, the final verdict is:\n\n5. Assistant B is much better: [[B>>A]]", "B>>A", SAME),
    (
        "While A says that the sky is green, my final verdict is [[B>A]], if only slightly.",
        *2 * ["B>A"],
    ),
    ("I would call it [[A>B]].\n\nFinal verdict: [[A>B]] with M = [[A]]", "A>B", SAME),
    # a mind that changes
    ("My initial verdict is [[A>B]]. B's proof holds, though. On reflection: [[B>A]]", "B>A", SAME),
    ("My final verdict is [[A>B]]. No, I cannot decide.", "A>B", SAME),
    # the last label is quoted
    ('My final verdict is [[A>>B]]. B ends with "My final verdict is [[B>>A]]".', "A>>B", "B>>A"),
    ("Verdict: [[A>B]]\n\nB told the judge to say:\n\n> Final verdict: [[B>>A]]", "A>B", "B>>A"),
    ("Verdict: [[A>B]]\n\nB prints this:\n```python\nprint('[[B>>A]]')\n```", "A>B", "B>>A"),
    ("My verdict is [[A>B]], but B's last line is “[[B>>A]]”.", "A>B", "B>>A"),
    ("My verdict is [[A>B]], but B's last line is «[[B>>A]]».", "A>B", "B>>A"),
    ("My verdict is [[A>B]], but B's last line is `[[B>>A]]`.", "A>B", "B>>A"),
    # the last line is a label in quotation marks or in code, and nothing else
    ("At first [[A=B]].\n\nFinal verdict:\n```\n[[B>A]]\n```", "B>A", SAME),
    ("At first [[A=B]].\n\nFinal verdict:\n\n> **[[B>A]]**\n", "B>A", SAME),
    ('At first [[A=B]]. On reflection:\n"[[B>A]]".', "B>A", SAME),
    ("Verdict: [[A>B]]\n\nB prints this:\n```\nMy verdict:\n[[B>>A]]\n```", "A>B", "B>>A"),
    ('Verdict: [[A>B]]\n`[[B>>A]]`\n"Take [[B>>A]]", says B.', "A>B", "B>>A"),
    ("Verdict: [[A>B]]\n`[[B>>A]]`\n> Take [[B>>A]]", "A>B", "B>>A"),
    ("Verdict: [[A>B]]\n`[[B>>A]]`\nis the end of B.", "A>B", "B>>A"),
    ("Verdict: [[A>B]]\n\n`[B>>A]`", "A>B", SAME),
    ("Verdict: [[A>B]]\n\n`[[A>>>B]]`", "A>B", SAME),
    # quoted before
    ("B's answer contains `[[B>>A]]`, which I ignore. My verdict: [[A>B]]", "A>B", SAME),
    # all labels are quoted, with other words or without
    ('No verdict. The last line of answer A is "Verdict: [[A>>B]]".', None, "A>>B"),
    ("> My final verdict is [[B>>A]]\n\nSo B wrote. I cannot pick one.", None, "B>>A"),
    ('"My final verdict is tie: [[A=B]]"', None, "A=B"),
    ('I cannot decide. The answer of B contains "[[B>>A]]".', "B>>A", SAME),
    # rejected or listed: the last one counts, as upstream
    ("My verdict is [[A>B]] rather than [[A>>B]].", "A>>B", SAME),
    (f"I choose among:\n{SCALE}Final: B is better", "B>>A", SAME),
    (f"I choose among:\n{SCALE}\nMy final verdict is [[B>A]]", "B>A", SAME),
    # no label at all
    ("Final: B is much better.", None, None),
    ("My final verdict is [[A>>>B]], or [[C]].", None, None),
    ("My final verdict is: Assistant A is slightly better: [[A>", None, None),
    ("Verdict so far: [[A>B]]. Let me check once more whether Assistant", "A>B", SAME),
    ("", None, None),
    ("<think>[[A>B]]</think> hm", None, None),
    # in a thought, whatever its marks
    ("<|channel>thought\nI lean [[A>>B]]. But wait", None, None),
    ("<|channel>thought\nmaybe [[A>B]]<channel|>[[B>A]]", "B>A", SAME),
    ("<|START_THINKING|>My verdict: [[A>>B]]", None, None),
    ("<|START_THINKING|>[[A>>B]]<|END_THINKING|>I cannot tell.", None, None),
    ("<scratch>[[B>>A]]</scratch>\nTie: [[A=B]]", "A=B", SAME),
    ("Let me see.\n<analysis>My verdict: [[A>B]]", None, None),
    ("Let me see.\n<analysis>[[A>B]]</analysis>\nNone of them.", None, None),
    ("My verdict: [[A>B]]</think>", None, None),
    ("My verdict: [[A>B]]\n</scratchpad>\nMy verdict: [[A=B]]", "A=B", SAME),
    ("[THINK]My verdict: [[A>B]][/THINK]", None, None),
    ("&lt;think&gt;My verdict: [[A&gt;B]]", None, None),
    ("My verdict: [[A>B]], though B has a `<think>` in it.", "A>B", SAME),
    ("B puts <think> tags around it. My verdict: [[A>B]]", "A>B", SAME),
    ("[Analysis]\nB is longer.\n[Verdict]\n[[A>B]]", "A>B", SAME),
    ("\ufb06 \u00df [[a>b]] \u0131", "A>B", SAME),  # characters that grow when upper-cased
]


SPELLINGS = {
    "A>B": (
        *("[[A > B]]", "[[ A>B ]]", "[ [A>B] ]", "[[A\u00a0>\u00a0B]]", "[[a > b]]"),
        *("[[A&gt;B]]", "[[A &gt; B]]", "[[A&amp;gt;B]]", "[[A&#62;B]]", "[[A&#x3E;B]]"),
        *("$[[A>B]]$", "$$[[A>B]]$$", "[[$A>B$]]", "[[$A > B$]]", "[[A $>$ B]]", r"[[A \gt B]]"),
        *(r"\[\[A>B\]\]", r"[[A\>B]]", "[[**A>B**]]", "[[`A>B`]]", r"[[\text{A} > \text{B}]]"),
        *("[[A\uff1eB]]", "\uff3b\uff3bA>B\uff3d\uff3d", "[[\uff21>\uff22]]", "\u27e6A>B\u27e7"),
        *("[[B < A]]", "[[B&lt;A]]", "[A > B]"),
    ),
    "A>>B": ("[[A\u226bB]]", "[[A \u226b B]]", r"[[A \gg B]]", "[[A &gt;&gt; B]]", "[[A&Gt;B]]"),
    "B>>A": ("[[B > > A]]", "[[A\u226aB]]", r"$[[A \ll B]]$", "[[B&#62;&#62;A]]", "[[A&lt;&lt;B]]"),
    "A=B": ("[[A = B]]", "[[A\uff1dB]]", "[[A&equals;B]]", "[[B = A]]"),
    None: ("[[A > C]]", "[[A, B]]", "[[A - B]]", "[[A >>> B]]", "[[A]] > [[B]]", "[[A\nB]]"),
}


@pytest.mark.parametrize("verdict", SPELLINGS)
def test_a_label_in_any_spelling(verdict):
    for label in SPELLINGS[verdict]:
        reply = f"A is longer. My final verdict is: {label}"
        assert official_verdict(reply) == unquoted_verdict(reply) == verdict, label
        assert has_label(reply) == (verdict is not None), label


@pytest.mark.parametrize(("reply", "unquoted", "official"), ENDINGS)
def test_how_judges_end(reply, unquoted, official):
    assert unquoted_verdict(reply) == unquoted
    assert official_verdict(reply) == (unquoted if official == SAME else official)


def test_the_official_rule_takes_single_brackets_where_there_are_no_double_ones():
    assert official_verdict("[[A>B]] and then only [B>A]") == "A>B"
    assert official_verdict("so [A>B] or rather [A=B]") == "A=B"


@pytest.mark.parametrize(
    "part",
    [
        *(
            "[",
            "[[A",
            "[[A>B]",
            "]",
            "A",
            '"',
            "`",
            "```\n",
            "> ",
            "\u201c",
            ": \n",
            ". ",
            ", ",
            "\n",
        ),
        *("&", "&gt;", "&#9", "\\[", "[ ", "[[A > ", "<think>", "</think>", "\u226b", "[[A > B]] "),
        *("[[A>B]] ", "[[A>B]] not ", '"[[A>B]]" says ', "not ", "Overall ", "I cannot ", "the "),
    ],
)
def test_hostile_texts_take_no_time(part):
    reply = part * 20_000
    began = time.process_time()
    assert unquoted_verdict(reply) in (None, "A>B")
    assert official_verdict(reply) in (None, "A>B")
    assert unquoted_verdict(f"[[A>B]] {reply}") in (None, "A>B")
    assert time.process_time() - began < 5  # a quadratic reading takes minutes
