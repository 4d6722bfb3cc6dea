"""Act on a module at the moment it is imported, without importing it early.

Ray starts many worker processes, and most of them never touch DeepSpeed or vLLM. Importing those
only to replace a name in them would cost every worker many seconds.
"""

from __future__ import annotations

import importlib.abc
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

Context = Callable[[ModuleType], AbstractContextManager[None]]


class _Loader(importlib.abc.Loader):
    """The module's own loader, run inside a context."""

    def __init__(self, loader: Any, context: Context):
        self._loader, self._context = loader, context

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        with self._context(module):
            self._loader.exec_module(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


class _Finder(importlib.abc.MetaPathFinder):
    """Asks the other finders for a module and wraps the loader that they name."""

    def __init__(self) -> None:
        self.contexts: dict[str, Context] = {}

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name not in self.contexts:
            return None
        for finder in sys.meta_path:
            if finder is not self and (spec := finder.find_spec(name, path, target)):
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader, self.contexts[name])
                return spec
        return None


_finder = _Finder()


def around_import(name: str, context: Context) -> None:
    """Lets module `name` execute inside `context(module)` when it is imported.

    Nothing happens if it has been imported already. A second call for the same name replaces the
    first, so that installing twice does no harm.
    """
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    _finder.contexts[name] = context


def after_import(name: str, action: Callable[[ModuleType], None]) -> None:
    """Runs `action(module)` once `name` is imported, or at once if it already is."""

    @contextmanager
    def context(module: ModuleType) -> Iterator[None]:
        yield
        action(module)

    around_import(name, context)
    if name in sys.modules:
        action(sys.modules[name])
