"""Many nodes that balance thousands of bundles: real `NodeCore`s, loads that are made up.

To be large it leaves out what other simulations have: all nodes read one copy of the folded state,
and time goes by steps. Nodes crash, come back and stop for a while; records arrive late, twice or
never. A node's load is the traffic of the bundles that the log says it owns.
"""

from __future__ import annotations

import math
from collections import Counter
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
    Halt,
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
    """One broker id, and the node that runs under it, if one does."""

    def __init__(self, broker: str) -> None:
        self.broker = broker
        self.core: NodeCore | None = None
        self.back_at = 0.0
        self.paused_until = 0.0
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
        self.machines = [Machine(f"b{number}:8080") for number in range(nodes)]
        self.loads: dict[str, broker_load.BrokerLoadData] = {}
        self.top: dict[str, TopBundlesLoadData] = {}
        self.rounds: list[Round] = []
        self.faults = Counter[str]()
        self.moved: dict[str, list[int]] = {}  # when the balancer's moves of a bundle were through
        self.crash_after: int | None = None  # records of a cycle: then its leader is gone
        self._leaving: dict[str, str] = {}
        self._wire: list[tuple[float, Record]] = []
        self._ids = 0
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
            self._start(machine)
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

    def _start(self, machine: Machine) -> None:
        settings = NodeSettings(
            machine.broker,
            "test",
            f"http://{machine.broker}",
            "",
            heartbeat_s=STEP_S,
            lease_s=4 * STEP_S,
            liveness_timeout_s=6 * STEP_S,
            default_bundles=self._bundles,
            burst=100_000,
            balance=SETTINGS,
        )
        machine.core = NodeCore(settings, self.replica, self.new_id)
        machine.entries, machine.beats = [], []
        machine.load = machine.reported = broker_load.FRESH
        self._carry_out(machine, machine.core.joined(self.now))

    # --- time ---------------------------------------------------------------------------

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self._step()

    def _step(self) -> None:
        self.now += STEP_S
        due = [record for at, record in self._wire if at <= self.now]
        self._wire = [(at, record) for at, record in self._wire if at > self.now]
        for record in due:
            self._append(record)
        for machine in self.machines:
            if machine.core is None:
                if machine.back_at <= self.now:
                    self._start(machine)
            elif machine.paused_until <= self.now:
                self._tick(machine, machine.core)

    def _append(self, record: Record) -> None:
        entry = self.replica.read(record, self.replica.next_offset, self.now_ms)
        self._watch(entry)
        for machine in self.machines:
            if machine.core is not None:
                machine.entries.append(entry)

    def _is_awake(self, machine: Machine) -> bool:
        return machine.core is not None and machine.paused_until <= self.now

    def _tick(self, machine: Machine, core: NodeCore) -> None:
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
        if records and self.crash_after is not None:
            records = records[: self.crash_after]
            self._crash(machine)
        for record in records:
            self._send(record)

    def _carry_out(self, machine: Machine, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case AppendRecord(record):
                    self._send(record)
                case SendHeartbeat(beat):
                    for each in self.machines:
                        if each.core is not None:
                            each.beats.append(beat)
                    if machine.core is not None:
                        machine.core.beat_acked(beat, self.now)
                case CloseUnit(unit):
                    if machine.core is not None:
                        self._carry_out(machine, machine.core.closed(unit, self.now))
                case Halt():
                    machine.core, machine.back_at = None, self.now + STEP_S

    def _send(self, record: Record) -> None:
        """A record arrives after a step or two; some twice, some never."""
        if self.rng.random() < 0.01:
            return
        for _ in range(1 + (self.rng.random() < 0.01)):
            late = self.rng.choice((0.0, 0.0, 0.0, STEP_S, 3 * STEP_S))
            self._wire.append((self.now + late, record))

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
        loads = [
            sum(self.owned(each.broker).values()) / CAPACITY
            for each in self.machines
            if each.core is not None
        ]
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

    # --- faults -------------------------------------------------------------------------

    def disturb(self) -> None:
        """Perhaps a node crashes, or stops for a while; the leader more often than others."""
        awake = [each for each in self.machines if self._is_awake(each)]
        if len(awake) < len(self.machines) * 0.8:
            return
        leader = [each for each in awake if each.broker == leader_of(self.replica)[0]]
        machine = self.rng.choice(leader if leader and self.rng.random() < 0.3 else awake)
        if self.rng.random() < 0.5:
            self._crash(machine)
        else:
            self.faults["pause"] += 1
            machine.paused_until = self.now + self.rng.uniform(1, 10) * STEP_S

    def _crash(self, machine: Machine) -> None:
        self.faults["crash"] += 1
        machine.core, machine.back_at = None, self.now + self.rng.uniform(1, 20) * STEP_S
        self.loads.pop(machine.broker, None)
        self.top.pop(machine.broker, None)

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

    def under_way(self) -> list[str]:
        """The bundles that the balancer moves now."""
        return list(self._leaving)

    def check_owners(self) -> None:
        """Every bundle is there once, and who serves it is whom the log names."""
        live = live_bundles(self.replica, NAMESPACE)
        if len(live) != self._bundles:
            raise ViolationError(f"{len(live)} bundles, not {self._bundles}")
        actors = Counter(
            name
            for machine in self.machines
            if machine.core is not None and self._is_awake(machine)
            for name in machine.core.serving
            if machine.core.may_act(name, self.now)
        )
        twice = [name for name, count in actors.items() if count > 1]
        if twice:
            raise ViolationError(f"{twice[0]} is served by several nodes")


def _stamped(load: broker_load.BrokerLoadData, now_ms: int) -> broker_load.BrokerLoadData:
    fields = {name: getattr(load, name) for name in load.__struct_fields__}
    return broker_load.BrokerLoadData(**fields | {"reported_at_ms": now_ms})
