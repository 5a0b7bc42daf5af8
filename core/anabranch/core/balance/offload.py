"""The bundles that the more loaded broker of a pair gives to the other, and those it takes back.

Half of the difference of their loads should go, as a share of the first one's throughput. Bundles
are offered in the order of the report, the least loaded first, until the next one would be too
much. Then a swap is tried: bundles of the other broker come back for it. Throughputs that do not
fit the loads can lead to a move that would make the deviation worse; such a move is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum, unique
from typing import Final

import msgspec

from anabranch.core.balance.broker_load import BrokerLoadData
from anabranch.core.balance.bundle_load import BundleLoad, TopBundlesLoadData
from anabranch.core.balance.choosing import Candidate, Terms, filtered
from anabranch.core.balance.policies import Policies
from anabranch.core.balance.settings import BalanceSettings, setting_name

_RELIEF: Final = 0.75  # a swap must leave the source with less of its throughput than this share


class ClusterView(msgspec.Struct, frozen=True):
    """The leader's view: loads and top bundles as reported, and the brokers that are there.

    `owner_of`: the owner of a bundle by the log, "" for one that has none or is on its way.
    `in_group`: the number of bundles of an anti-affinity group that each broker owns.
    """

    loads: Mapping[str, BrokerLoadData]
    top: Mapping[str, TopBundlesLoadData]
    candidates: Sequence[Candidate]
    owner_of: Callable[[str], str]
    policies: Policies
    in_group: Callable[[str], Mapping[str, int]]


class BundleMove(msgspec.Struct, frozen=True, gc=False):
    """One bundle from a broker of a pair to the other."""

    bundle: str
    source: str
    destination: str


class ExchangeStep(msgspec.Struct, frozen=True):
    """A bundle of the source, after those that come back for it.

    `squares`: the change, since the pair's first step, of the sum of the squares of both loads.
    """

    moves: tuple[BundleMove, ...]
    squares: float


@unique
class Stopped(StrEnum):
    """Why a pair exchanges no more."""

    NO_REPORT = "the source has not reported its top bundles"
    ONE_BUNDLE = "the source has reported one bundle, and keeps that"
    LAST_BUNDLE = "the source keeps the last bundle of those that it reported"
    ALL_SEEN = "no other bundle that was reported may be moved"
    TOO_MUCH = "the next bundle would be too much, and nothing that comes back makes up for it"
    WORSE = "the next bundle, with what comes back for it, would make the deviation worse"
    ASKED = "the strategy asks for no more of these two"

    @property
    def is_missing_report(self) -> bool:
        """Tells whether load data was missing, rather than bundles."""
        return self is Stopped.NO_REPORT


@unique
class Unmoved(StrEnum):
    """Why a bundle that was reported is not offered."""

    EXCLUDED = "its namespace is excluded from shedding"
    MOVED_LATELY = "the balancer moved it less than a grace period ago"
    BOUND = "a policy or a group binds its namespace, and such bundles are not moved"
    BARRED = "the other broker may not have it"
    NOT_OWNED = "it is not its broker's any more, is on its way, or came for a reason not known"
    NO_TRAFFIC = "its throughput is nothing, or no number"

    @property
    def setting(self) -> str:
        """The setting by which it could be otherwise; "" for none."""
        return setting_name(_FIELDS[self]) if self in _FIELDS else ""


_FIELDS: Final[Mapping[Unmoved, str]] = {
    Unmoved.EXCLUDED: "shedding_excluded_namespaces",
    Unmoved.MOVED_LATELY: "shedding_grace_period_minutes",
    Unmoved.BOUND: "shedding_bundles_with_policies_enabled",
}


class Exchange(msgspec.Struct, frozen=True):
    """One pair: its wanted exchange, in bytes a second, its actual one, and the reason why not
    more.

    `next_bundle`: the one that it stopped at; "" if there is none. `unmoved`: those of the source
    that were not offered, up to there.
    """

    source: str
    destination: str
    wanted: float
    moved: float
    steps: tuple[ExchangeStep, ...]
    stopped: Stopped
    next_bundle: str = ""
    unmoved: tuple[tuple[str, Unmoved], ...] = ()


class Pair(msgspec.Struct, frozen=True):
    """Two brokers, the more loaded one first, and their loads."""

    source: str
    destination: str
    high: BrokerLoadData
    low: BrokerLoadData

    @property
    def wanted(self) -> float:
        """The part of the source's throughput that should go, in bytes a second.

        Throughput alone distinguishes brokers without any load.
        """
        load = self.high.weighted_max_ema
        if load == 0:
            return max(0.0, self.high.msg_throughput - self.low.msg_throughput) / 2
        difference = load - self.low.weighted_max_ema
        return self.high.msg_throughput * (difference / 2 / load)

    def after(self, moved: float) -> tuple[float, float]:
        """Both loads as they should be with so many bytes a second moved."""
        high, low = self.high.weighted_max_ema, self.low.weighted_max_ema
        if not self.high.msg_throughput:
            return high, low
        load = moved * high / self.high.msg_throughput
        return max(0.0, high - load), low + load

    def squares(self, moved: float) -> float:
        """The change of the sum of the squares of both loads after a move of `moved` bytes a
        second.
        """
        if not self.high.msg_throughput:
            return 0.0
        high, low = self.after(moved)
        before = self.high.weighted_max_ema**2, self.low.weighted_max_ema**2
        return high**2 + low**2 - before[0] - before[1]


class Permits:
    """The permission for a bundle to go from one broker to another in this call."""

    def __init__(
        self, view: ClusterView, settings: BalanceSettings, recently: Mapping[str, int]
    ) -> None:
        self.transfers: Final = settings.transfer_enabled
        self._view = view
        self._settings = settings
        self._recently = recently
        self._excluded = frozenset(settings.shedding_excluded_namespaces)
        self._policy = view.policies.by_namespace
        self._allowed: dict[tuple[object, str], frozenset[str]] = {}

    def refusal(self, bundle: str, source: str, destination: str) -> Unmoved | None:
        """The reason why the bundle may not go from the source to the destination now; None if it
        may.
        """
        namespace = bundle.rpartition("/")[0]
        if namespace in self._excluded:
            return Unmoved.EXCLUDED
        if bundle in self._recently:
            return Unmoved.MOVED_LATELY
        allowed = self._destinations(namespace)
        if allowed is None:
            return Unmoved.BOUND
        if destination not in allowed:
            return Unmoved.BARRED
        return None if self._view.owner_of(bundle) == source else Unmoved.NOT_OWNED

    def _destinations(self, namespace: str) -> frozenset[str] | None:
        """The brokers that all filters leave; none if a filter fails. None: it must stay."""
        policy = self._policy[namespace]
        group = self._view.policies.group_of(namespace)
        bound = policy is not None or group != ""
        if bound and not self._settings.shedding_bundles_with_policies_enabled:
            return None
        found = self._allowed.get((id(policy), group))
        if found is None:
            terms = Terms(
                namespace,
                self._settings,
                self._view.policies,
                self._view.in_group(group) if group else {},
            )
            left = filtered(self._view.candidates, terms)
            found = frozenset(() if left.failed else (each.broker for each in left.kept))
            self._allowed[id(policy), group] = found
        return found


def offload(pair: Pair, view: ClusterView, permits: Permits) -> Exchange:
    """The exchange of the pair."""
    offered = _reported(view, pair.source)
    if len(offered) < 2:
        stopped = Stopped.ONE_BUNDLE if offered else Stopped.NO_REPORT
        return Exchange(pair.source, pair.destination, pair.wanted, 0.0, (), stopped)
    coming = iter(_reported(view, pair.destination) if permits.transfers else ())
    wanted, before = pair.wanted, 0.0
    moved, remaining = 0.0, len(offered)  # leaving bundles, less returning ones
    steps: list[ExchangeStep] = []
    unmoved: list[tuple[str, Unmoved]] = []
    stopped, next_bundle = Stopped.ALL_SEEN, ""
    for bundle, load in offered:
        refusal = permits.refusal(bundle, pair.source, pair.destination)
        if refusal is not None:
            unmoved.append((bundle, refusal))
            continue
        if remaining <= 1:
            stopped, next_bundle = Stopped.LAST_BUNDLE, bundle
            break
        throughput = _throughput(load)
        if throughput == 0:
            unmoved.append((bundle, Unmoved.NO_TRAFFIC))
            continue
        too_much = moved + throughput > wanted
        back = _swap(pair, moved + throughput, coming, permits) if too_much else []
        if too_much and not back:
            stopped, next_bundle = Stopped.TOO_MUCH, bundle
            break
        then = moved + throughput - sum(amount for _, amount in back)
        squares = pair.squares(then)
        if squares > before:
            stopped, next_bundle = Stopped.WORSE, bundle
            break
        moves = [BundleMove(name, pair.destination, pair.source) for name, _ in back]
        steps.append(
            ExchangeStep((*moves, BundleMove(bundle, pair.source, pair.destination)), squares)
        )
        moved, before, remaining = then, squares, remaining - 1
    return Exchange(
        pair.source,
        pair.destination,
        wanted,
        moved,
        tuple(steps),
        stopped,
        next_bundle,
        tuple(unmoved),
    )


def as_asked(pair: Pair, bundles: Iterable[str], view: ClusterView, permits: Permits) -> Exchange:
    """The exchange of the pair if a strategy has named the source's bundles."""
    loads = dict(_reported(view, pair.source))
    moved, steps, unmoved = 0.0, list[ExchangeStep](), list[tuple[str, Unmoved]]()
    for bundle in bundles:
        refusal = permits.refusal(bundle, pair.source, pair.destination)
        if refusal is not None:
            unmoved.append((bundle, refusal))
            continue
        moved += _throughput(loads[bundle])
        move = BundleMove(bundle, pair.source, pair.destination)
        steps.append(ExchangeStep((move,), pair.squares(moved)))
    ends = tuple(steps), Stopped.ASKED, "", tuple(unmoved)
    return Exchange(pair.source, pair.destination, pair.wanted, moved, *ends)


_NOTHING: Final = TopBundlesLoadData()


def _reported(view: ClusterView, broker: str) -> tuple[tuple[str, BundleLoad], ...]:
    """The top bundles of a broker, the least loaded first, each once; none without a report."""
    return tuple(dict(view.top.get(broker, _NOTHING).bundles).items())


def _throughput(load: BundleLoad) -> float:
    """Bytes a second in and out; 0 for an unsound load, so that the bundle stays where it is."""
    return load.msg_throughput if load.is_sound else 0.0


def _swap(
    pair: Pair, going: float, coming: Iterator[tuple[str, BundleLoad]], permits: Permits
) -> list[tuple[str, float]]:
    """The bundles that come back when `going` leaves in all; none if none fit. They are so many
    that the source does not become the less loaded one, and so few that it is relieved.

    `coming`: the destination's bundles, each looked at once.
    """
    most = pair.high.msg_throughput
    high, low = most - going, pair.low.msg_throughput + going
    back: list[tuple[str, float]] = []
    for bundle, load in coming:
        throughput = load.msg_throughput
        # The fit comes first: that check is fastest, and lets few through.
        if (
            high + throughput < most
            and low - throughput < most
            and throughput > 0
            and load.is_sound
            and permits.refusal(bundle, pair.destination, pair.source) is None
        ):
            back.append((bundle, throughput))
            high, low = high + throughput, low - throughput
            if low <= high < _RELIEF * most:
                return back
    return []
