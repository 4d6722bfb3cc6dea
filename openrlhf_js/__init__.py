"""Baselines for reinforcement learning of language models. `estimators` needs torch alone."""

from importlib.util import find_spec

__version__ = "0.5.0.dev0"

HOW_TO_INSTALL = "how to install it: docs/install.md, Four packages"


def needs(extra: str, *modules: str) -> None:
    """Raises ModuleNotFoundError that names the extra, if one of its modules is not installed."""
    for module in modules:
        if find_spec(module) is None:
            raise ModuleNotFoundError(
                f"{module} is not installed; it comes with openrlhf-js[{extra}] ({HOW_TO_INSTALL})"
            )
