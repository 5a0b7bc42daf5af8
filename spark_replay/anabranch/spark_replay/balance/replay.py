"""One replay: a recording, under one setting of the balancer.

Time goes in steps. In each, what the recording says of bundles comes into force, every broker
measures itself and tells what a node would tell (`core.balance.reports`), and once in an interval
the leader decides by what it was told (`core.balance.cycle`). What it decides changes who owns the
bundles from then on; what the recorded cluster moved by itself is not followed.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Mapping
from typing import Final

import msgspec

from anabranch.core.balance.assigning import ChoiceRules, LoadChooser
from anabranch.core.balance.broker_load import FRESH, BrokerLoadData, is_stale, updated
from anabranch.core.balance.bundle_load import BundleLoad, TopBundlesLoadData
from anabranch.core.balance.cycle import BalanceCycle
from anabranch.core.balance.filters import Candidate
from anabranch.core.balance.offload import ClusterView
from anabranch.core.balance.policies import NO_POLICIES
from anabranch.core.balance.recording import BundleLine, LoadRecording
from anabranch.core.balance.reports import BrokerReports, Resources, sample_of
from anabranch.core.balance.settings import BalanceSettings
from anabranch.core.balance.shedding import Unload
from anabranch.core.balance.strategies import Strategies
from anabranch.core.balance.usage import deviation_of
from anabranch.core.log.grounds import BUILT_IN
from anabranch.core.log.replica import MemoryReplica
from anabranch.core.ring import split_bundle_name
from anabranch.spark_replay.balance.brokers import BrokerModel
from anabranch.spark_replay.balance.outcome import BalanceFigures, BalanceOutcome, ReplayedMove
from anabranch.spark_replay.report.charts import Bins

_MANAGER: Final = "replayed"
_VERSION: Final = "1.0.0"
_LISTED_MAX: Final = 500
_FAULTS_MAX: Final = 10
_LOOK_MS: Final = 60_000  # between two looks whether a report of top bundles is old


class ReplayRules(msgspec.Struct, frozen=True):
    """What does not depend on the balancer. `step_s`: between two measurements of a broker;
    `move_s`: from a decision until the bundle has its next owner; `flap_s`: within which a bundle's
    return to the broker that it left counts as flapping.
    """

    step_s: float = 5.0
    move_s: float = 0.0
    flap_s: float = 3_600.0


class _Broker(msgspec.Struct):
    """A broker of the replay. The last three follow from what it owns, until that changes: then
    `is_changed`. `load`: its true one, by the yardstick. `looked_ms`: when its top bundles were.
    """

    model: BrokerModel
    reports: BrokerReports
    owned: set[str]
    bundles: Mapping[str, BundleLoad]
    resources: Resources
    load: float = 0.0
    is_changed: bool = True
    looked_ms: int = 0


class _Move(msgspec.Struct):
    bundle: str
    destination: str
    done_ms: int


class BalanceReplay:
    """One run. `yardstick`: the first settings of the comparison, by whose weights and target all
    of them are measured.
    """

    def __init__(
        self,
        recording: LoadRecording,
        models: Mapping[str, BrokerModel],
        settings: BalanceSettings,
        yardstick: BalanceSettings,
        rules: ReplayRules,
        bins: Bins,
        strategies: Strategies | None = None,
    ) -> None:
        self._recording = recording
        self._settings = settings
        self._yardstick = yardstick
        self._rules = rules
        self._bins = bins
        self._rows = deque(each for each in recording.lines if isinstance(each, BundleLine))
        self._now_ms = recording.begin_ms
        self._loads: dict[str, BundleLoad] = {}  # by bundle
        self._owners: dict[str, str] = {}
        self._brokers = {
            broker: _Broker(model, BrokerReports(settings), set(), {}, model.resources(0.0))
            for broker, model in models.items()
        }
        self._under_way: dict[str, _Move] = {}
        self._cycle = BalanceCycle()
        if strategies is not None:
            self._cycle.strategies = strategies.copy()
        self._told: dict[str, BrokerLoadData] = {}
        self._top: dict[str, TopBundlesLoadData] = {}
        self._left: dict[str, tuple[str, int]] = {}  # whom a bundle left, and when
        self._counts = Counter[str]()
        self._reasons = Counter[str]()
        self._ended = Counter[str]()
        self._decided_by = Counter[str]()
        self._faults = Counter[str]()
        self._moves_of = Counter[str]()
        self._log: list[ReplayedMove] = []
        self._deviations: list[float] = []  # of each step

    def run(self, name: str) -> BalanceOutcome:
        """Through the whole recording."""
        step_ms = round(self._rules.step_s * 1000)
        steps = max(1, -(-(self._recording.end_ms - self._recording.begin_ms) // step_ms))
        self._follow()
        for number in range(steps):
            self._now_ms = self._recording.begin_ms + number * step_ms
            self._follow()
            self._settle()
            for broker, state in self._brokers.items():
                self._measure(broker, state)
            self._deviations.append(deviation_of([each.load for each in self._brokers.values()]))
            self._shed()
        return BalanceOutcome(name, self._figures(), self._over_time(), self._log)

    # --- the cluster ----------------------------------------------------------------------

    def _follow(self) -> None:
        """Takes in what the recording says until now."""
        while self._rows and self._rows[0].time_ms <= self._now_ms:
            row = self._rows.popleft()
            if row.bundle not in self._owners:
                owner = self._owner_of_parent(row.bundle) or row.broker
                self._owners[row.bundle] = owner
                self._brokers[owner].owned.add(row.bundle)
            self._loads[row.bundle] = row.load.plain
            self._brokers[self._owners[row.bundle]].is_changed = True

    def _owner_of_parent(self, bundle: str) -> str:
        """Who owns the bundle that this one was split off from; "" where that is none."""
        namespace, part = split_bundle_name(bundle)
        found = ""
        narrowest = math.inf
        for other, owner in self._owners.items():
            home, whole = split_bundle_name(other)
            width = whole.upper - whole.lower
            inside = whole.lower <= part.lower and part.upper <= whole.upper
            if home == namespace and inside and width < narrowest:
                found, narrowest = owner, width
        return found

    def _measure(self, name: str, broker: _Broker) -> None:
        """The broker measures itself, and tells what is to be told."""
        if broker.is_changed:
            broker.bundles = {each: self._loads[each] for each in sorted(broker.owned)}
            throughput = math.fsum(each.msg_throughput for each in broker.bundles.values())
            broker.resources = broker.model.resources(throughput)
            sample = sample_of(broker.resources, broker.bundles)
            broker.load = updated(FRESH, sample, self._yardstick, self._now_ms).weighted_max_ema
        load = broker.reports.measured(
            broker.resources, broker.bundles, self._now_ms, self._cycle.gave_at_ms(name)
        )
        if load is not None:
            self._told[name] = load
        # A report that would be the same is only told anew when it is old.
        if broker.is_changed or self._now_ms - broker.looked_ms >= _LOOK_MS:
            broker.looked_ms = self._now_ms
            top = broker.reports.top(broker.bundles, NO_POLICIES, self._now_ms)
            if top is not None:
                self._top[name] = top
        broker.is_changed = False

    # --- the leader -----------------------------------------------------------------------

    def _shed(self) -> None:
        settings = self._settings
        due = self._cycle.due(
            "shedding", settings.shedding_interval_minutes * 60, self._now_ms / 1000
        )
        if not (due and settings.enabled and settings.shedding_enabled):
            return
        found = self._cycle.shed_by(self._view(), settings, self._now_ms)
        self._counts["cycles"] += 1
        self._counts["acting"] += bool(found.decisions)
        self._ended[found.ended.name.lower()] += 1
        if found.decisions:
            self._decided_by[found.strategy or BUILT_IN] += len(found.decisions)
        if found.fault:
            self._faults[found.fault] += 1
        for each in found.decisions:
            self._begin(each)
        self._settle()

    def _view(self) -> ClusterView:
        return ClusterView(
            loads=self._told,
            top=self._top,
            candidates=[self._candidate(broker) for broker in self._brokers],
            owner_of=self._owner_at_rest,
            policies=NO_POLICIES,
            load_manager_class=_MANAGER,
            in_group=lambda _: {},
        )

    def _owner_at_rest(self, bundle: str) -> str:
        return "" if bundle in self._under_way else self._owners.get(bundle, "")

    def _candidate(self, broker: str) -> Candidate:
        load = self._told.get(broker)
        if load is not None and is_stale(load, self._settings, self._now_ms):
            load = None
        return Candidate(broker, _VERSION, _MANAGER, load)

    def _begin(self, unload: Unload) -> None:
        bundle, source = unload.bundle, unload.source
        destination = unload.destination or self._next_owner(bundle)
        self._cycle.leaves(bundle, source)
        done_ms = self._now_ms + round(self._rules.move_s * 1000)
        self._under_way[bundle] = _Move(bundle, destination, done_ms)
        left, at_ms = self._left.get(bundle, ("", 0))
        is_flap = left == destination and self._now_ms - at_ms <= self._rules.flap_s * 1000
        self._left[bundle] = source, self._now_ms
        self._moves_of[bundle] += 1
        self._counts["flaps"] += is_flap
        self._reasons[unload.reason.value] += 1
        if len(self._log) < _LISTED_MAX:
            self._log.append(
                ReplayedMove(
                    *(self._now_ms, bundle, source, destination, unload.reason.value),
                    *(unload.std_before, unload.std_after, is_flap),
                )
            )

    def _next_owner(self, bundle: str) -> str:
        """Whom the next look-up finds, where no destination is named."""
        rules = ChoiceRules(self._settings, _MANAGER, NO_POLICIES, self._cycle.strategies)
        choose = LoadChooser(MemoryReplica(), rules, self._candidate)
        broker, _ = choose(bundle, {name: len(each.owned) for name, each in self._brokers.items()})
        return broker

    def _settle(self) -> None:
        """Moves that are through by now."""
        through = [each for each in self._under_way.values() if each.done_ms <= self._now_ms]
        for move in through:
            del self._under_way[move.bundle]
            source = self._brokers[self._owners[move.bundle]]
            destination = self._brokers[move.destination]
            source.owned.discard(move.bundle)
            destination.owned.add(move.bundle)
            self._owners[move.bundle] = move.destination
            self._cycle.settled(move.bundle, self._now_ms)
            for broker in (source, destination):
                broker.reports.changed_hands()
                broker.is_changed = True

    # --- what came of it ------------------------------------------------------------------

    def _figures(self) -> BalanceFigures:
        found, step_s = self._deviations, self._rules.step_s
        target = self._settings.broker_load_target_std
        first_below = next((at for at, each in enumerate(found) if each <= target), -1)
        return BalanceFigures(
            seconds=len(found) * step_s,
            cycles=self._counts["cycles"],
            acting=self._counts["acting"],
            moves=self._moves_of.total(),
            bundles_moved=len(self._moves_of),
            moved_again=sum(count > 1 for count in self._moves_of.values()),
            flaps=self._counts["flaps"],
            deviation_start=found[0],
            deviation_mean=math.fsum(found) / len(found),
            deviation_max=max(found),
            deviation_end=found[-1],
            until_below_s=None if first_below < 0 else first_below * step_s,
            above_s=sum(each > target for each in found) * step_s,
            above_first_s=sum(each > self._yardstick.broker_load_target_std for each in found)
            * step_s,
            reasons=dict(sorted(self._reasons.items())),
            ended=dict(sorted(self._ended.items())),
            decided_by=dict(sorted(self._decided_by.items())),
            faults=dict(self._faults.most_common(_FAULTS_MAX)),
        )

    def _over_time(self) -> list[float]:
        """The deviation, in the mean over each bin of the plots."""
        step_ms, begin_ms = round(self._rules.step_s * 1000), self._recording.begin_ms
        sums = [(0.0, 0)] * self._bins.count
        for number, each in enumerate(self._deviations):
            at = (begin_ms + number * step_ms - self._bins.start_ms) // self._bins.width_ms
            total, count = sums[min(at, self._bins.count - 1)]
            sums[min(at, self._bins.count - 1)] = total + each, count + 1
        last, found = 0.0, []
        for total, count in sums:
            last = total / count if count else last
            found.append(last)
        return found
