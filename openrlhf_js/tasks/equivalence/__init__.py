r"""Whether two mathematical answers are the same: read, compared exactly, or else numerically.

An answer goes through these files from top to bottom:

- `grader`: takes an answer and a label (`labels` says what one may be) and returns the score.
- `text`, on `signs`, spells LaTeX, unicode and plain text in one way; `tokens` cuts that into
  numbers and words.
- `syntax`, on `commands`, `terms`, `atoms` and `cursor`: a parser that makes a `tree` of the
  tokens; `readings` tries what else the text can be: a time, a date, a choice, words.
- `decision` asks `compare` whether any reading is the gold answer. It compares structure: lists and
  their `members`, tuples, `equations`, sets of reals (`domains`), words and times (`marks`),
  numbers with `units` (`quantities`).
- Two scalars are put to a judge (`judges`): exact rational `values` at once in the caller. What is
  left goes to the grading pool, where `symbolic` asks `numeric`: 150 digits at a few points, with
  the `functions` that it knows. math-verify is asked last, where our grammar ends.

Units may be left out, but not contradict; a rounding is no exact value; `\log` without a base is
natural or common, in the same way on both sides, and common against a label with `\ln`; a residue
class, `5 \pmod 7`, is no number.
"""
