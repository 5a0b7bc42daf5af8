"""A broker node without its shell: inputs in, effects out, no clock, thread or socket.

The shell (asyncio and Kafka in production, the scheduler in simulation) calls one method for each
thing that happened, with the time on its own monotonic clock, and carries out the effects returned.
Effects on units come from reconciling: the folded state is compared with what the node is actually
doing, and the difference acted upon: a restart, a missed event and a live one take the same path.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from anabranch.core import ownership
from anabranch.core.digest import to_hex
from anabranch.core.effects import (
    Append,
    Beat,
    BrokerState,
    Close,
    Effect,
    Halt,
    NodeSettings,
    Open,
    settings_difference,
)
from anabranch.core.fold import Folded
from anabranch.core.leases import Heartbeat, Lease, Liveness
from anabranch.core.ownership import Actor, NewId
from anabranch.core.placement import choose_broker
from anabranch.core.records import (
    Cause,
    ClusterSettings,
    Record,
    SessionChange,
    SessionOp,
    UnitMove,
)
from anabranch.core.replica import Replica
from anabranch.core.state import Session, leader_of
from anabranch.core.units import LEADERSHIP, Move, Unit, UnitState
from anabranch.core.verdicts import Verdict


class NodeCore:
    """The decisions of one broker. Its owner calls it from one task only."""

    def __init__(self, settings: NodeSettings, replica: Replica, new_id: NewId) -> None:
        self.settings = settings
        self.state = replica
        self.lease = Lease(settings.lease_s)
        self.liveness = Liveness(settings.broker, settings.liveness_timeout_s)
        self.mode = BrokerState.JOINING
        self.session = 0
        self.serving: dict[str, bool] = {}  # unit -> open; False while it is closing
        self._new_id = new_id
        self._opening: dict[str, float] = {}  # own session proposals: id -> when sent
        self._pending: dict[str, tuple[int, float]] = {}  # key -> version proposed, retry time
        self._in_flight: dict[str, tuple[int, float]] = {}  # unit -> version, since when seen
        self._sequence = 0
        self._next_beat = 0.0
        self._next_monitor = 0.0
        self._settled_at = 0.0
        self._orphans_at = math.inf
        self._log_now_ms = 0

    # --- questions ----------------------------------------------------------------------

    @property
    def me(self) -> str:
        return self.settings.broker

    def actor(self) -> Actor:
        """This broker as a proposer."""
        leader, epoch = leader_of(self.state)
        return Actor(self.me, self.session, epoch if leader == self.me else 0)

    def is_leader(self) -> bool:
        return leader_of(self.state)[0] == self.me

    def may_act(self, name: str, now: float) -> bool:
        """Whether this node may serve as the unit's owner at this instant."""
        if not self.lease.holds(now) or not self.serving.get(name):
            return False
        unit = self.state.unit(name)
        return unit is not None and unit.holder == self.me

    def candidates(self, now: float) -> dict[str, int]:
        """Brokers that can take units, with the number they have."""
        found: dict[str, int] = {}
        for broker, session in self.state.sessions():
            if session.open and self._takes_units(broker, session, now):
                found[broker] = self.state.unit_count(broker)
        return found

    def _takes_units(self, broker: str, session: Session, now: float) -> bool:
        if broker == self.me:
            return self.mode is BrokerState.SERVING and self.lease.holds(now)
        beat = self.liveness.beat_of(broker)
        return (
            beat is not None
            and beat.session == session.version
            and beat.state == BrokerState.SERVING.value
            and not self.liveness.is_silent(broker)
        )

    # --- inputs -------------------------------------------------------------------------

    def joined(self, now: float) -> list[Effect]:
        """The view has caught up with the log for the first time."""
        for broker, session in self.state.sessions():
            self.liveness.session_opened(broker, session.version, now, session.since_ms)
        for name, unit in self.state.unsettled():
            self._in_flight[name] = (unit.version, now)
        self._orphans_at = now
        self._next_monitor = now + self.settings.monitor_interval_s
        return self.tick(now)

    def folded(self, entries: Iterable[Folded], now: float) -> list[Effect]:
        """Entries were read from the log and the state has been changed accordingly."""
        effects: list[Effect] = []
        touched: dict[str, None] = {}
        for entry in entries:
            self._log_now_ms = max(self._log_now_ms, entry.timestamp_ms)
            record = entry.record
            if record is None:
                continue
            if isinstance(record, SessionChange):
                effects += self._session_folded(record, entry, now)
            accepted = entry.outcome.verdict is Verdict.ACCEPTED
            if accepted:
                touched.update((key, None) for key, _ in entry.outcome.changes)
            if accepted or record.actor == self.me:
                self._pending.pop(record.key, None)
        for name in touched:
            effects += self._unit_changed(name, now)
        if self.session:
            effects += self._duties(now)
        return effects

    def heard(self, beat: Heartbeat, log_ms: int, now: float) -> list[Effect]:
        """A heartbeat, possibly this node's own, was read from the `brokers` topic."""
        self._log_now_ms = max(self._log_now_ms, log_ms)
        self.liveness.heard(beat, now, log_ms)
        return []

    def beat_acked(self, beat: Heartbeat, now: float) -> list[Effect]:
        """A heartbeat is in the log for certain."""
        if beat.session == self.session:
            self.lease.renew(beat.sent_at, now)
        return []

    def closed(self, name: str, now: float) -> list[Effect]:
        """Nothing of the unit is served here any more."""
        self.serving.pop(name, None)
        return list(self._reconcile(name, now))

    def drain(self, now: float) -> list[Effect]:
        """A graceful stop was asked for: give every unit away, then end the session."""
        if self.mode is not BrokerState.STOPPED:
            self.mode = BrokerState.DRAINING
            self._next_beat = now
        return self.tick(now)

    def tick(self, now: float) -> list[Effect]:
        """Time has passed; call it at least twice in a heartbeat interval."""
        effects: list[Effect] = []
        if self.mode is BrokerState.STOPPED:
            return effects
        if self.state.cluster() is None:
            return list(self._found_cluster(now))
        differs = self._settings_differ()
        if differs:
            self.mode = BrokerState.STOPPED
            return [Halt(differs, clean=False)]
        if self.session and now >= self._next_beat:
            effects.append(self._beat(now))
        if not self.lease.holds(now):
            effects += self._reopen(now)
            return effects
        for name, (version, due) in list(self._pending.items()):
            if now >= due:
                del self._pending[name]
                if version and self.state.unit(name) is not None:
                    effects += self._reconcile(name, now)
        for name, unit in self.state.unsettled():
            if self.me in (unit.broker, unit.source):
                effects += self._reconcile(name, now)
        effects += self._duties(now)
        return effects

    # --- sessions and the cluster -------------------------------------------------------

    def _found_cluster(self, now: float) -> Iterator[Effect]:
        wanted = self.settings
        yield from self._propose(
            ClusterSettings(
                proposal_id=self._new_id(),
                cluster=wanted.cluster,
                version=1,
                actor=self.me,
                heartbeat_ms=round(wanted.heartbeat_s * 1000),
                lease_ms=round(wanted.lease_s * 1000),
                liveness_timeout_ms=round(wanted.liveness_timeout_s * 1000),
                default_bundles=wanted.default_bundles,
            ),
            now,
        )

    def _settings_differ(self) -> str:
        found, wanted = self.state.cluster(), self.settings
        if found is None:
            return ""
        return settings_difference(found, wanted)

    def _reopen(self, now: float) -> Iterator[Effect]:
        """Without a lease: propose another session, unless this node was about to leave anyway."""
        if self.mode is BrokerState.SERVING:
            self.mode = BrokerState.SAFE
        before = self.state.session(self.me)
        record = SessionChange(
            proposal_id=self._new_id(),
            broker=self.me,
            op=SessionOp.OPEN,
            version=(before.version if before else 0) + 1,
            actor=self.me,
            session=0,
            cause=Cause.LEASE_LAPSED if self.session else Cause.START_UP,
        )
        for effect in self._propose(record, now):
            self._opening[record.proposal_id] = now
            yield effect

    def _session_folded(self, record: SessionChange, entry: Folded, now: float) -> list[Effect]:
        if entry.outcome.verdict is not Verdict.ACCEPTED:
            self._opening.pop(record.proposal_id, None)
            return []
        self.liveness.session_opened(record.broker, record.version, now, entry.timestamp_ms)
        if record.op is not SessionOp.OPEN:
            self._orphans_at = now
        if record.broker != self.me:
            return []
        sent_at = self._opening.pop(record.proposal_id, None)
        self._opening.clear()
        if record.op is not SessionOp.OPEN:
            self.lease.end()
            if record.op is SessionOp.CLOSE and self.mode is BrokerState.DRAINING:
                self.mode = BrokerState.STOPPED
                return [Halt("drained", clean=True)]
            return []
        if sent_at is None:
            if not self.session:
                return []  # an earlier process of this broker; this one opens its own next
            self.mode = BrokerState.STOPPED
            self.lease.end()
            return [
                Halt(
                    f"fenced: another process has opened session {record.version} of broker "
                    f"{self.me}; give each node a broker id of its own",
                    clean=False,
                )
            ]
        if self.session:
            self._settled_at = now + self.settings.liveness_timeout_s
        self.session = record.version
        self.lease.begin(sent_at)
        if self.mode is not BrokerState.DRAINING:
            self.mode = BrokerState.SERVING
        self._next_beat = now
        effects: list[Effect] = [self._beat(now)]
        for name, _ in list(self.state.units_of(self.me)):
            effects += self._reconcile(name, now)
        return effects

    def _beat(self, now: float) -> Beat:
        self._sequence += 1
        self._next_beat = now + self.settings.heartbeat_s
        return Beat(
            Heartbeat(
                broker=self.me,
                session=self.session,
                sequence=self._sequence,
                sent_at=now,
                state=self.mode.value,
                next_offset=self.state.next_offset,
                digest=to_hex(self.state.digest),
                horizon=self.state.horizon,
                web_url=self.settings.web_url,
                service_url=self.settings.service_url,
                version=self.settings.version,
            )
        )

    # --- units --------------------------------------------------------------------------

    def _propose(self, record: Record, now: float) -> Iterator[Effect]:
        pending = self._pending.get(record.key)
        if pending is not None and pending[0] == record.version and now < pending[1]:
            return
        self._pending[record.key] = (record.version, now + self.settings.retry_s)
        yield Append(record)

    def _unit_changed(self, name: str, now: float) -> Iterator[Effect]:
        unit = self.state.unit(name)
        if unit is None or unit.state in (UnitState.FREE, UnitState.OWNED):
            self._in_flight.pop(name, None)
        elif self._in_flight.get(name, (0, 0.0))[0] != unit.version:
            self._in_flight[name] = (unit.version, now)
        yield from self._reconcile(name, now)

    def _reconcile(self, name: str, now: float) -> Iterator[Effect]:
        """Compares what the log says with what this node does, and acts on the difference."""
        if name == LEADERSHIP or not self.session:
            return
        unit = self.state.unit(name)
        serves = self.serving.get(name)
        mine = unit is not None and unit.holder == self.me
        leaving = not mine or (unit is not None and unit.state is UnitState.RELEASING)
        if serves is not None and leaving:
            if serves:
                self.serving[name] = False
                yield Close(name)
            return
        if unit is None:
            return
        if mine and unit.state is UnitState.OWNED:
            if serves is None:
                self.serving[name] = True
                yield Open(name)
            return
        step = ownership.next_step(self.actor(), name, unit, self.liveness.beat_of, self._new_id)
        if step is not None and self._worth_proposing(step, unit):
            yield from self._propose(step, now)

    def _worth_proposing(self, step: UnitMove, unit: Unit) -> bool:
        """An OWN that the fold must still reject is not sent: the former holder settles first."""
        if step.move is not Move.OWN or not unit.source:
            return True
        session = self.state.session(unit.source)
        gone = session is None or not session.open or session.since_offset > unit.since_offset
        return gone or step.evidence > unit.since_offset

    # --- duties -------------------------------------------------------------------------

    def _duties(self, now: float) -> Iterator[Effect]:
        if not self.lease.holds(now) or self.mode is BrokerState.STOPPED:
            return
        if self.mode is BrokerState.DRAINING:
            yield from self._drain_step(now)
            return
        if now < self._settled_at:
            return
        for broker, session in list(self.state.sessions()):
            if session.open and self.liveness.is_silent(broker):
                heard = self.liveness.last_heard_ms(broker)
                record = ownership.expiry(self.state, self.actor(), broker, heard, self._new_id())
                if record is not None:
                    yield from self._propose(record, now)
        claim = ownership.leadership(self.state, self.actor(), self._new_id())
        if claim is not None:
            self._orphans_at = now
            yield from self._propose(claim, now)
        if self.is_leader():
            yield from self._lead(now)

    def _lead(self, now: float) -> Iterator[Effect]:
        monitor = now >= self._next_monitor
        if monitor:
            self._next_monitor = now + self.settings.monitor_interval_s
        if not monitor and now < self._orphans_at:
            return
        counts = self.candidates(now)
        actor = self.actor()
        repairs = list(ownership.orphans(self.state, actor, counts, self._new_id))
        self._orphans_at = now + self.settings.retry_s if repairs else math.inf
        if monitor:
            repairs += self._monitored(now, counts)
        for record in repairs[: self.settings.burst]:
            yield from self._propose(record, now)

    def _monitored(self, now: float, counts: dict[str, int]) -> Iterator[UnitMove]:
        actor = self.actor()
        unsettled = list(self.state.unsettled())

        def waited_s(name: str, unit: Unit) -> float:
            version, since = self._in_flight.get(name, (unit.version, now))
            return now - since if version == unit.version else 0.0

        patience_s = self.settings.stuck_after_s
        yield from ownership.stuck(unsettled, waited_s, patience_s, actor, counts, self._new_id)
        delay_ms = round(self.settings.tombstone_delay_s * 1000)
        yield from ownership.tombstones(unsettled, self._log_now_ms, delay_ms, actor, self._new_id)

    def _drain_step(self, now: float) -> Iterator[Effect]:
        counts = self.candidates(now)
        left = False
        for name, unit in list(self.state.units_of(self.me)):
            if name == LEADERSHIP or self.me not in (unit.responsible, unit.holder):
                continue
            left = True
            target = choose_broker(name, counts)
            record = ownership.release(
                self.actor(), name, unit, target, self._new_id(), Cause.SHUTDOWN
            )
            if record is not None:
                if target:
                    counts[target] += 1
                yield from self._propose(record, now)
        if left:
            return
        if self.is_leader():
            lead = self.state.unit(LEADERSHIP)
            yield from self._propose(
                ownership.move(
                    self.actor(), LEADERSHIP, lead, Move.RESIGN, self._new_id(), Cause.SHUTDOWN
                ),
                now,
            )
            return
        yield from self._propose(
            SessionChange(
                proposal_id=self._new_id(),
                broker=self.me,
                op=SessionOp.CLOSE,
                version=self.session + 1,
                actor=self.me,
                session=self.session,
                cause=Cause.SHUTDOWN,
            ),
            now,
        )
