"""Acts on a module when it is imported, without importing it early.

Ray starts many workers, and most never use DeepSpeed or vLLM, whose import takes seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from importlib.machinery import SourceFileLoader
from types import ModuleType

Context = Callable[[ModuleType], AbstractContextManager[None]]


_contexts: dict[str, Context] = {}
_execute = SourceFileLoader.exec_module


def _execute_in_context(loader: SourceFileLoader, module: ModuleType) -> None:
    with _contexts.get(module.__name__, lambda _: nullcontext())(module):
        _execute(loader, module)


def around_import(name: str, context: Context) -> None:
    """Makes module `name` execute inside `context(module)`, if it is not imported yet."""
    SourceFileLoader.exec_module = _execute_in_context  # type: ignore[assignment, method-assign]
    _contexts[name] = context  # installing twice does no harm
