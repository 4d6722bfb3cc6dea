"""`python -m paired_eval.cli`, the command `paired-eval`."""

import sys

from paired_eval.cli import main

if __name__ == "__main__":
    sys.exit(main())
