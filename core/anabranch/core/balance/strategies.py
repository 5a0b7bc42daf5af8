"""Strategies: their input, their valid answers, and the decision without a valid answer.

A strategy is an operator's own function. It is a pure function of its arguments: no clock, no I/O,
no memory. The node calls it in the course of its decision, so it must answer within milliseconds.
The rules around it stay, whatever its answer: the loads that count, hit counts, grace periods,
policies, and the amount of work in a cycle. If a strategy raises, or its answer makes no sense, the
node names it with the reason, and the built-in rule decides.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import StrEnum, unique
from types import MappingProxyType
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import astuple

from anabranch.core.balance.bundle_load import BundleLoad, TopBundlesLoadData
from anabranch.core.balance.counters import SplitReason, UnloadReason
from anabranch.core.balance.filters import Candidate
from anabranch.core.balance.offload import ClusterView
from anabranch.core.balance.settings import BalanceSettings, setting_name
from anabranch.core.errors import InvalidInputError
from anabranch.core.ring import split_bundle_name

_FAULT_MAX: Final = 200  # letters of what is said of a strategy that was not followed
_Answer = TypeVar("_Answer")


@unique
class StrategyKind(StrEnum):
    """The decision that a strategy can make; each is a group of entry points."""

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


Shedder = Callable[[ClusterView, BalanceSettings], Iterable[WantedMove]]
"""What should move now, the most urgent first; the view has the loads that count, and no others."""

Assignment = Callable[[str, Sequence[Candidate], Mapping[str, int], BalanceSettings], str]
"""Whom a unit goes to, of the brokers that all filters left; how many units each broker has."""

Split = Callable[[Mapping[str, BundleLoad], BalanceSettings], Iterable[Cut]]
"""Which of a broker's own bundles should be cut, the most urgent first."""


class Strategies:
    """The installed ones, by kind and name; `faults`: the reason why one was not followed,
    by both.
    """

    def __init__(
        self, found: Mapping[StrategyKind, Mapping[str, Callable[..., Any]]] | None = None
    ) -> None:
        self.faults: dict[tuple[StrategyKind, str], str] = {}
        self._found = found or {}

    def copy(self) -> Strategies:
        """The same ones, for a decision in thought, whose faults are not this one's."""
        return Strategies(self._found)

    def wanted(self, view: ClusterView, settings: BalanceSettings) -> list[WantedMove] | None:
        """The shedder's wishes; None if the built-in rule decides."""
        reported = reported_by(view.top, view.loads)

        def checked(answer: Iterable[WantedMove]) -> list[WantedMove]:
            found: dict[str, WantedMove] = {}
            for each in answer:
                _must_be(each, WantedMove)
                for said, wanted in zip(astuple(each), (str, str, UnloadReason), strict=True):
                    _must_be(said, wanted)
                _must(each.bundle in reported, f"no broker has reported bundle {each.bundle!r}")
                _must(each.bundle not in found, f"{each.bundle} is named twice")
                _must(each.destination in view.loads, f"{each.destination!r} has no load")
                _must(
                    each.destination != reported[each.bundle],
                    f"{each.destination} has {each.bundle} already",
                )
                _must(each.reason in _UNLOADS, f"{each.reason!r} is no reason to move a bundle")
                found[each.bundle] = each
            return list(found.values())

        shown = msgspec.structs.replace(
            view, loads=MappingProxyType(view.loads), top=MappingProxyType(view.top)
        )
        return self._asked(StrategyKind.SHEDDER, settings, checked, shown, settings)

    def broker(
        self,
        unit: str,
        kept: Sequence[Candidate],
        counts: Mapping[str, int],
        settings: BalanceSettings,
    ) -> str | None:
        """The assignment strategy's choice; None if the built-in rule decides."""
        names = {each.broker for each in kept}
        if not names:
            return None

        def checked(answer: str) -> str:
            _must_be(answer, str)
            _must(answer in names, f"{answer!r} is not among the brokers to choose from")
            return answer

        given = unit, tuple(kept), MappingProxyType(counts), settings
        return self._asked(StrategyKind.ASSIGNMENT, settings, checked, *given)

    def cuts(
        self, loads: Mapping[str, BundleLoad], settings: BalanceSettings
    ) -> dict[str, Cut] | None:
        """The split strategy's wishes, by bundle; None if the built-in rule decides."""

        def checked(answer: Iterable[Cut]) -> dict[str, Cut]:
            found: dict[str, Cut] = {}
            for each in answer:
                _must_be(each, Cut)
                for said, wanted in zip(astuple(each), (str, SplitReason, str), strict=False):
                    _must_be(said, wanted)
                _must(each.bundle in loads, f"{each.bundle!r} is no bundle that was measured")
                _must(each.bundle not in found, f"{each.bundle} is named twice")
                _must(each.reason in _SPLITS, f"{each.reason!r} is no reason to split a bundle")
                _, whole = split_bundle_name(each.bundle)
                if each.boundary is not None:
                    _must_be(each.boundary, int)
                    inside = whole.lower < each.boundary < whole.upper
                    _must(inside, f"{each.boundary} is no place inside {each.bundle}")
                found[each.bundle] = each
            return found

        return self._asked(StrategyKind.SPLIT, settings, checked, MappingProxyType(loads), settings)

    def fault(self, kind: StrategyKind, settings: BalanceSettings) -> str:
        """Why the strategy that is to decide was not followed the last time, with its name; "" if
        it was.
        """
        return self.faults.get((kind, kind.named_in(settings)), "")

    def _asked(
        self,
        kind: StrategyKind,
        settings: BalanceSettings,
        checked: Callable[[Any], _Answer],
        *given: object,
    ) -> _Answer | None:
        name = kind.named_in(settings)
        if not name:
            return None
        key = kind, name
        try:
            strategy = self._found.get(kind, {}).get(name)
            if strategy is None:
                raise InvalidInputError("it is not installed on this node")
            answer = checked(strategy(*given))
        except InvalidInputError as error:
            self._failed(key, str(error))
        except Exception as error:  # noqa: BLE001 - it is another's code, which may do anything
            self._failed(key, f"it raised {type(error).__name__}: {error}")
        else:
            self.faults.pop(key, None)
            return answer
        return None

    def _failed(self, key: tuple[StrategyKind, str], why: str) -> None:
        self.faults[key] = f"strategy {key[1]} did not decide: {why}"[:_FAULT_MAX]


def reported_by(top: Mapping[str, TopBundlesLoadData], loads: Collection[str]) -> dict[str, str]:
    """The broker that has told of each bundle, among the brokers whose loads count."""
    return {
        bundle: broker
        for broker, report in top.items()
        if broker in loads
        for bundle, _ in report.bundles
    }


_UNLOADS: Final = frozenset((UnloadReason.OVERLOADED, UnloadReason.UNDERLOADED))
_SPLITS: Final = frozenset(set(SplitReason) - {SplitReason.ADMIN, SplitReason.UNKNOWN})


def _must_be(answer: object, wanted: type) -> None:
    """Just that type: a record on the log takes no other string or number."""
    _must(type(answer) is wanted, f"it answered {answer!r:.100}, which is no {wanted.__name__}")


def _must(holds: bool, fault: str) -> None:
    if not holds:
        raise InvalidInputError(fault)
