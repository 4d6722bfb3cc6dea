"""The James-Stein shrinkage baseline for OpenRLHF. `openrlhf_js.estimators` needs only torch."""

from importlib.util import find_spec

__version__ = "0.5.0.dev0"


def needs(extra: str, *modules: str) -> None:
    """Raises ModuleNotFoundError that names the extra, if one of its modules is not installed."""
    for module in modules:
        if find_spec(module) is None:
            install = f"pip install 'openrlhf-js[{extra}]'"
            raise ModuleNotFoundError(f"this needs an extra, for {module}: {install}")
