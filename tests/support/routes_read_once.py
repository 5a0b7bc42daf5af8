"""FastAPI reads the signature of a route once in a process, and not again for each node of a test.

A node's routes are functions that close over its operations, so FastAPI takes those of each node
for new ones: a tenth of a second of processor time for each, of which tests start hundreds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import CodeType
from typing import Any

from fastapi import routing
from fastapi.dependencies.models import Dependant
from fastapi.dependencies.utils import get_dependant

_read: dict[tuple[str, CodeType, tuple[Any, ...] | None, str | None], Dependant] = {}


def _get_dependant_once(
    *, path: str, call: Callable[..., Any], scope: Any = None, **others: Any
) -> Dependant:
    """What the same code at the same path was found to need, for this function of it."""
    code = getattr(call, "__code__", None)
    if code is None or call.__kwdefaults__ or others:
        return get_dependant(path=path, call=call, scope=scope, **others)
    key = path, code, call.__defaults__, scope
    if key not in _read:
        _read[key] = get_dependant(path=path, call=call, scope=scope)
    # Whoever asks adds the dependencies of the route to the list.
    return replace(_read[key], call=call, dependencies=list(_read[key].dependencies))


def install() -> None:
    """For the rest of this process."""
    routing.get_dependant = _get_dependant_once  # type: ignore[attr-defined]
