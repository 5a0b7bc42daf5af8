"""Strategies of the load balancer that others have written: found as entry points, and loaded."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from anabranch.core.balance.strategies import Strategies, StrategyKind
from anabranch.core.errors import InvalidInputError


def installed() -> Strategies:
    """Returns all that are installed beside Anabranch. It reads files, and runs their imports."""
    return Strategies(
        {
            kind: {each.name: _loaded(each) for each in entry_points(group=kind.value)}
            for kind in StrategyKind
        }
    )


class _Refusal:
    """In the place of a strategy that cannot be loaded: it says so when it is asked."""

    def __init__(self, why: str) -> None:
        self._why = why

    def __call__(self, *given: object) -> None:
        raise InvalidInputError(self._why)


def _loaded(entry: EntryPoint) -> Callable[..., Any]:
    try:
        strategy: object = entry.load()
    except Exception as error:  # noqa: BLE001 - it is another's code, which may do anything
        why = f"{entry.value} cannot be loaded: {type(error).__name__}: {error}"
        return _Refusal(why)
    return strategy if callable(strategy) else _Refusal(f"{entry.value} is no function")
