"""The former name of `openrlhf_js.cli.train`."""

import sys

from openrlhf_js.cli.train import main

if __name__ == "__main__":
    sys.exit(main())
