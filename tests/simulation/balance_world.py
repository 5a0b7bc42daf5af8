"""Many nodes that balance thousands of bundles: real `NodeCore`s, loads that are made up.

To be large it leaves out what other simulations have: faults, and a state of each node's own. Time
goes by steps. A node's load is the traffic of the bundles that the log says it owns.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from random import Random
from typing import Final

from anabranch.core.balance import broker_load
from anabranch.core.balance.broker_load import ResourceUsage
from anabranch.core.balance.bundle_load import BundleLoad, TopBundlesLoadData, top_bundles
from anabranch.core.balance.policies import NO_POLICIES
from anabranch.core.balance.settings import BalanceSettings
from anabranch.core.balance.shedding import Round
from anabranch.core.balancer import Balancer
from anabranch.core.effects import (
    AppendRecord,
    CloseUnit,
    Effect,
    NodeSettings,
    SendHeartbeat,
)
from anabranch.core.entities.unit import LEADERSHIP, Move, UnitState
from anabranch.core.fold.replica import MemoryReplica
from anabranch.core.log.outcome import Folded
from anabranch.core.log.records import AUTOMATIC, Cause, Record, UnitMove
from anabranch.core.log.state import leader_of, live_bundles
from anabranch.core.log.verdicts import Verdict
from anabranch.core.node import NodeCore
from anabranch.core.sessions.lease import Heartbeat
from simulation.scheduler import ViolationError

STEP_S: Final = 2.0
EPOCH_MS: Final = 1_700_000_000_000
NAMESPACE: Final = "public/default"
MEAN_LOAD: Final = 0.4  # of a node
CAPACITY: Final = 100e6  # bytes a second of one node

# A tenth of the defaults' times, so that a run is short.
SETTINGS: Final = BalanceSettings(
    history_resource_percentage=0.5,
    shedding_interval_minutes=0.1,
    shedding_delay_in_seconds=18.0,
    shedding_grace_period_minutes=3.0,
    report_update_max_interval_minutes=0.2,
    broker_load_data_ttl_in_seconds=60.0,
    broker_load_target_std=0.1,
    max_number_of_broker_shedding_per_cycle=10,
)


class Machine:
    """A node, and what it has yet to read."""

    def __init__(self, world: BalanceWorld, broker: str, bundles: int) -> None:
        self.broker = broker
        settings = NodeSettings(
            broker,
            "test",
            f"http://{broker}",
            "",
            heartbeat_s=STEP_S,
            lease_s=4 * STEP_S,
            liveness_timeout_s=6 * STEP_S,
            default_bundles=bundles,
            burst=100_000,
            balance=SETTINGS,
        )
        self.core = NodeCore(settings, world.replica, world.new_id)
        self.entries: list[Folded] = []
        self.beats: list[Heartbeat] = []
        self.load: broker_load.BrokerLoadData = broker_load.FRESH
        self.reported: broker_load.BrokerLoadData = broker_load.FRESH


class BalanceWorld:
    """One run. `traffic` has what each bundle takes in a second."""

    def __init__(self, seed: int, nodes: int, bundles: int) -> None:
        self.rng = Random(seed)
        self.now = 0.0
        self.replica = MemoryReplica()
        self.loads: dict[str, broker_load.BrokerLoadData] = {}
        self.top: dict[str, TopBundlesLoadData] = {}
        self.rounds: list[Round] = []
        self.moved: dict[str, list[int]] = {}  # when the balancer's moves of a bundle were through
        self._leaving: dict[str, str] = {}
        self._sent: list[Record] = []
        self._ids = 0
        self.machines = [Machine(self, f"b{number}:8080", bundles) for number in range(nodes)]
        self._bundles = bundles
        self.traffic: dict[str, float] = {}

    @property
    def now_ms(self) -> int:
        return EPOCH_MS + round(self.now * 1000)

    def new_id(self) -> str:
        self._ids += 1
        return f"p{self._ids}"

    # --- the beginning ------------------------------------------------------------------

    def begin(self) -> None:
        """All nodes start; the first tenth of them takes half of all bundles."""
        for machine in self.machines:
            self._carry_out(machine, machine.core.joined(self.now))
        self.run(20)
        names = [name for name, _ in live_bundles(self.replica, NAMESPACE)]
        weights = [self.rng.lognormvariate(0.0, 1.0) for _ in names]
        share = MEAN_LOAD * CAPACITY * len(self.machines) / sum(weights)
        self.traffic = {name: each * share for name, each in zip(names, weights, strict=True)}
        brokers = [machine.broker for machine in self.machines]
        few = brokers[: max(1, len(brokers) // 10)]
        for name in names:
            unit = self.replica.unit(name)
            if unit is not None and unit.state is UnitState.FREE:
                broker = self.rng.choice(few if self.rng.random() < 0.3 else brokers)
                session = self.replica.session(brokers[0])
                assert session is not None
                self._append(
                    UnitMove(
                        self.new_id(),
                        name,
                        Move.ASSIGN,
                        unit.version + 1,
                        brokers[0],
                        session.version,
                        broker,
                        cause=Cause.LOOKUP,
                    )
                )
        self.run(5)

    # --- time ---------------------------------------------------------------------------

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self._step()

    def _step(self) -> None:
        self.now += STEP_S
        due, self._sent = self._sent, []
        for record in due:
            self._append(record)
        for machine in self.machines:
            self._tick(machine)

    def _append(self, record: Record) -> None:
        entry = self.replica.read(record, self.replica.next_offset, self.now_ms)
        self._watch(entry)
        for machine in self.machines:
            machine.entries.append(entry)

    def _tick(self, machine: Machine) -> None:
        core = machine.core
        entries, machine.entries = machine.entries, []
        beats, machine.beats = machine.beats, []
        for beat in beats:
            core.heard(beat, self.now_ms, self.now)
        self._carry_out(machine, core.folded(entries, self.now))
        self._carry_out(machine, core.tick(self.now))
        self._report(machine)
        found, records = Balancer(core, self.new_id).shed(self.loads, self.top, self.now)
        if found is not None:
            if leader_of(self.replica)[0] != machine.broker:
                raise ViolationError(f"{machine.broker} sheds and does not lead")
            self.rounds.append(found)
        self._sent += records

    def _carry_out(self, machine: Machine, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case AppendRecord(record):
                    self._sent.append(record)
                case SendHeartbeat(beat):
                    for each in self.machines:
                        each.beats.append(beat)
                    machine.core.beat_acked(beat, self.now)
                case CloseUnit(unit):
                    self._carry_out(machine, machine.core.closed(unit, self.now))

    # --- loads --------------------------------------------------------------------------

    def _report(self, machine: Machine) -> None:
        owned = self.owned(machine.broker)
        total = sum(owned.values())
        sample = broker_load.LoadSample(
            bandwidth_in=ResourceUsage(total, CAPACITY),
            msg_throughput_in=total,
            bundle_count=len(owned),
        )
        machine.load = broker_load.updated(machine.load, sample, SETTINGS, self.now_ms)
        if broker_load.report_due(machine.load, machine.reported, SETTINGS, self.now_ms):
            machine.reported = _stamped(machine.load, self.now_ms)
            machine.load = machine.reported
            self.loads[machine.broker] = machine.reported
        bundles = {name: BundleLoad(msg_throughput_in=each) for name, each in owned.items()}
        self.top[machine.broker] = top_bundles(bundles, SETTINGS, NO_POLICIES, self.now_ms)

    def owned(self, broker: str) -> dict[str, float]:
        """The traffic of the bundles that a broker owns."""
        return {
            name: self.traffic.get(name, 0.0)
            for name, unit in self.replica.units_of(broker)
            if unit.holder == broker and name != LEADERSHIP
        }

    def deviation(self) -> float:
        """Of the true loads of all nodes that are there."""
        loads = [sum(self.owned(each.broker).values()) / CAPACITY for each in self.machines]
        mean = math.fsum(loads) / len(loads)
        return math.sqrt(math.fsum((load - mean) ** 2 for load in loads) / len(loads))

    def change_loads(self) -> None:
        """A hundredth of all bundles gets hotter or colder; the sum stays what it is."""
        names = list(self.traffic)
        before = sum(self.traffic.values())
        for name in self.rng.sample(names, max(1, len(names) // 100)):
            self.traffic[name] *= self.rng.choice((0.2, 0.5, 2.0, 5.0))
        share = before / sum(self.traffic.values())
        # A bundle that is more than a node can be relieved of wants a split, not a move.
        most = CAPACITY / 20
        self.traffic = {name: min(each * share, most) for name, each in self.traffic.items()}

    # --- what must hold -----------------------------------------------------------------

    def _watch(self, entry: Folded) -> None:
        record = entry.record
        if not isinstance(record, UnitMove) or entry.outcome.verdict is not Verdict.ACCEPTED:
            return
        unit = self.replica.unit(record.unit)
        if record.move is Move.RELEASE and record.cause in AUTOMATIC:
            earlier = self.moved.get(record.unit, [])
            grace_ms = SETTINGS.shedding_grace_period_minutes * 60_000
            if earlier and entry.timestamp_ms - earlier[-1] <= grace_ms:
                raise ViolationError(f"{record.unit} moves again within its grace period")
            if not record.broker or not record.choice:
                raise ViolationError(f"{record.unit} moves without destination or reason")
            self._leaving[record.unit] = record.broker
        elif record.unit in self._leaving and unit is not None and unit.state is UnitState.OWNED:
            del self._leaving[record.unit]
            self.moved.setdefault(record.unit, []).append(entry.timestamp_ms)


def _stamped(load: broker_load.BrokerLoadData, now_ms: int) -> broker_load.BrokerLoadData:
    fields = {name: getattr(load, name) for name in load.__struct_fields__}
    return broker_load.BrokerLoadData(**fields | {"reported_at_ms": now_ms})
