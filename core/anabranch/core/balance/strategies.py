"""Strategies: operators' functions that decide in place of three built-in rules.

A strategy is an operator's own function. It is a pure function of its arguments: no clock, no I/O,
no memory. The node calls it in the course of its decision, so it must answer within milliseconds.
The rules around it stay, whatever its answer: the loads that count, hit counts, grace periods,
policies, and the amount of work in a cycle. If a strategy raises, or its answer makes no sense, the
node names it with the reason, and the built-in rule decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum, unique
from typing import Any, Final, TypeVar

import msgspec

from anabranch.core.balance.counters import SplitReason, UnloadReason
from anabranch.core.balance.settings import BalanceSettings, setting_name
from anabranch.core.errors import InvalidInputError

_FAULT_MAX: Final = 200  # letters of what is said of a strategy that was not followed
_Answer = TypeVar("_Answer")


@unique
class StrategyKind(StrEnum):
    """The decision that a strategy can make; each is a group of entry points.

    SHEDDER is given a `ClusterView` with the loads that count, and the settings; it answers
    `WantedMove`s. ASSIGNMENT is given a unit's name, the `Candidate`s that all filters left, the
    number of units of each broker, and the settings; it answers the name of one of them. SPLIT is
    given the `BundleLoad` of each of a broker's bundles, and the settings; it answers `Cut`s. The
    most urgent of several comes first.
    """

    SHEDDER = "anabranch.shedder"
    ASSIGNMENT = "anabranch.assignment"
    SPLIT = "anabranch.split"

    @property
    def setting(self) -> str:
        """The setting that names the strategy."""
        return setting_name(_FIELDS[self])

    def named_in(self, settings: BalanceSettings) -> str:
        """The strategy that is to decide; "" for the built-in one."""
        name: str = getattr(settings, _FIELDS[self])
        return name


_FIELDS: Final[Mapping[StrategyKind, str]] = {
    StrategyKind.SHEDDER: "load_shedding_strategy",
    StrategyKind.ASSIGNMENT: "load_placement_strategy",
    StrategyKind.SPLIT: "bundle_split_strategy",
}


class WantedMove(msgspec.Struct, frozen=True):
    """A bundle that a broker has reported is to go to another one."""

    bundle: str
    destination: str
    reason: UnloadReason = UnloadReason.OVERLOADED


class Cut(msgspec.Struct, frozen=True):
    """A bundle is to be cut in two at `boundary`; None: the algorithm of the settings cuts it.

    `why` says the excess in words.
    """

    bundle: str
    reason: SplitReason
    why: str = ""
    boundary: int | None = None


_WishT = TypeVar("_WishT", WantedMove, Cut)


class Strategies:
    """The installed ones, by kind and name. `faults`: the reason why the one that is to decide was
    not followed the last time, by kind; "" if it was.
    """

    def __init__(
        self, found: Mapping[StrategyKind, Mapping[str, Callable[..., Any]]] | None = None
    ) -> None:
        self.faults: dict[StrategyKind, str] = {}
        self._found = found or {}

    def copy(self) -> Strategies:
        """The same ones for a decision in thought, whose faults are not these."""
        return Strategies(self._found)

    def ask(
        self,
        kind: StrategyKind,
        settings: BalanceSettings,
        checked: Callable[[Any], _Answer],
        *given: object,
    ) -> tuple[_Answer | None, str]:
        """The answer of the strategy that is to decide, None if there is none; and its fault."""
        name = kind.named_in(settings)
        answer, fault = None, ""
        if name:
            try:
                strategy = self._found.get(kind, {}).get(name)
                if strategy is None:
                    raise InvalidInputError("it is not installed on this node")
                answer = checked(strategy(*given))
            except InvalidInputError as error:
                fault = str(error)
            except Exception as error:  # noqa: BLE001 - it is another's code, which may do anything
                fault = f"it raised {type(error).__name__}: {error}"
        if fault:
            fault = f"strategy {name} did not decide: {fault}"[:_FAULT_MAX]
        self.faults[kind] = fault
        return answer, fault


def wishes(answer: Iterable[object], kind: type[_WishT]) -> dict[str, _WishT]:
    """A strategy's wishes, by bundle. Raises InvalidInputError for two of one bundle, and what
    msgspec raises for an object that is no wish.
    """
    found: dict[str, _WishT] = {}
    for each in answer:
        must(type(each) is kind, f"it answered {each!r:.100}, which is no {kind.__name__}")
        wish = plain(each, kind)
        must(wish.bundle not in found, f"{wish.bundle} is named twice")
        found[wish.bundle] = wish
    return found


def plain(answer: object, wanted: type[_Answer]) -> _Answer:
    """The answer in types that a record on the log takes: a string or number of numpy's is none.

    Raises TypeError and msgspec.ValidationError.
    """
    return msgspec.convert(msgspec.to_builtins(answer), wanted)


def must(holds: bool, fault: str) -> None:
    """Raises InvalidInputError with the fault of an answer."""
    if not holds:
        raise InvalidInputError(fault)
