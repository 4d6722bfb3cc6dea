r"""Whether two mathematical answers are the same: read, compared exactly, or else numerically.

`grader` takes an answer and a label: `spelling` writes both in one way, `syntax` makes trees of
them, `compare` compares their structure and exact values. What is left goes to the killable pool,
where `numeric` compares 150 digits at a few points and, where our grammar ends, asks math-verify.

Units may be left out, but not contradict, and are not converted; a rounding is no exact value;
`\log` without a base is natural or common, in the same way on both sides.
"""
