"""How the command lines of all programs are read."""

from __future__ import annotations

import argparse
from typing import Any, NoReturn


class Parser(argparse.ArgumentParser):
    """argparse's, without abbreviations; what is wrong is one line and exit status 2.

    argparse would print the usage before it, which pushes the error of a long one off the screen.
    """

    def __init__(self, **settings: Any):
        settings = {"formatter_class": argparse.RawDescriptionHelpFormatter, **settings}
        super().__init__(allow_abbrev=False, **settings)

    def error(self, message: str) -> NoReturn:
        """As argparse calls it."""
        self.exit(2, f"{self.prog}: {message} (--help shows what is allowed)\n")
