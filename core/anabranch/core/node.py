"""A broker node without its shell: inputs in, effects out, no clock, thread or socket.

The shell (asyncio and Kafka in production, the scheduler in simulation) calls one method for each
event, with its monotonic time, and carries out the effects that the method returns. Heartbeats
return none: the node acts on them at its next tick. Inputs may repeat. Effects on units come from
reconciling: the node compares the folded state with its own actions, and acts on the difference. A
restart, a missed event and a live one take the same path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Final

from anabranch.core.balance.broker_load import BrokerLoadData
from anabranch.core.balance.choosing import Candidate, LoadChooser
from anabranch.core.balance.cycle import BalanceCycle
from anabranch.core.balance.policies import Policies, policies_of
from anabranch.core.bundles import give_away, propose
from anabranch.core.bundles.propose import Actor, NewId
from anabranch.core.duties import Duties, expiries
from anabranch.core.effects import (
    AppendRecord,
    BrokerState,
    CloseUnit,
    Effect,
    Halt,
    NodeSettings,
    OpenUnit,
    SendHeartbeat,
    settings_difference,
)
from anabranch.core.entities.session import Session
from anabranch.core.entities.unit import IN_FLIGHT, LEADERSHIP, Unit, UnitState
from anabranch.core.fold.replica import Replica
from anabranch.core.log.outcome import Folded
from anabranch.core.log.records import (
    ClusterSettings,
    Record,
    SessionChange,
    SessionOp,
    UnitMove,
    session_key,
)
from anabranch.core.log.state import leader_of
from anabranch.core.log.verdicts import Verdict
from anabranch.core.membership import ClusterMembership, SessionOutcome
from anabranch.core.proposal_throttle import ProposalThrottle
from anabranch.core.sessions.lease import Heartbeat, Liveness
from anabranch.core.sessions.log_contact import LogContact

_OF_POLICIES: Final = ("namespace:", "placement:")  # keys of what says where bundles may be
_OF_SESSIONS: Final = session_key("")


def _nothing_told(broker: str) -> None:
    return None


class NodeCore:
    """The decisions of one broker. Its owner calls it from one task only."""

    def __init__(self, settings: NodeSettings, replica: Replica, new_id: NewId) -> None:
        self.settings = settings
        self.me: Final = settings.broker
        self.state = replica
        self.liveness = Liveness(settings.liveness_timeout_s)
        self.serving: dict[str, bool] = {}  # unit -> open; False while it is closing
        self._unfinished: dict[str, None] = {}  # units in flight that name this node
        self.balance = BalanceCycle()
        self._new_id = new_id
        self._membership = ClusterMembership(settings)
        self.lease: Final = self._membership.lease
        self._contact = LogContact(settings.lease_s)
        self._duties = Duties(settings)
        self._pacing = ProposalThrottle(settings.retry_s)
        self._policies: Policies | None = None
        self.load_of: Callable[[str], BrokerLoadData | None] = _nothing_told  # the shell knows more
        self._handled = 0  # the first log offset that was not handed in yet
        self.log_ms = 0  # the newest time that the log has told; retention is measured on it
        self._give_away_at = 0.0
        self._silence_counts_from = 0.0  # not before this are others called silent

    # --- questions ----------------------------------------------------------------------

    @property
    def mode(self) -> BrokerState:
        return self._membership.mode

    @property
    def session(self) -> int:
        """The number of this process's newest session; 0 before the first."""
        return self._membership.session

    def actor(self) -> Actor:
        """Returns this broker as a proposer."""
        leader, epoch = leader_of(self.state)
        return Actor(self.me, self.session, epoch if leader == self.me else 0)

    def is_leader(self) -> bool:
        return leader_of(self.state)[0] == self.me

    def may_act(self, name: str, now: float) -> bool:
        """Tells whether this node may serve as the unit's owner at this instant."""
        if not self.lease.holds(now) or not self.serving.get(name):
            return False
        unit = self.state.unit(name)
        return unit is not None and unit.holder == self.me

    def is_serving(self, now: float) -> bool:
        """Tells whether it may decide for others: not in safe mode, and not about to leave."""
        return self.mode is BrokerState.SERVING and self.lease.holds(now)

    def policies(self) -> Policies:
        """Returns the rules about the places of bundles, by the log."""
        if self._policies is None:
            self._policies = policies_of(self.state)
        return self._policies

    def chooser(self, at_hand: str = "") -> LoadChooser:
        """Returns the present choice of brokers, by filters and load."""
        rules = self.settings.balance, self.policies()
        notes = self.balance
        return LoadChooser(
            self.state, *rules, self.candidate, notes.strategies, at_hand, notes.turns
        )

    def candidate(self, broker: str) -> Candidate:
        """Returns the known facts of a broker that could take units."""
        beat = self.liveness.beat_of(broker)
        version = beat.version if beat is not None else self.settings.version
        return Candidate(broker, version, self.load_of(broker))

    def candidates(self, now: float) -> dict[str, int]:
        """Brokers that can take units, with the number they have."""
        return {broker: self.state.unit_count(broker) for broker in self.takers(now)}

    def takers(self, now: float) -> list[str]:
        """Brokers that can take units."""
        return [
            broker
            for broker, session in self.state.sessions()
            if session.open and self._takes_units(broker, session, now)
        ]

    def _takes_units(self, broker: str, session: Session, now: float) -> bool:
        if broker == self.me:
            return self.is_serving(now)
        beat = self.liveness.beat_of(broker)
        return (
            beat is not None
            and beat.session == session.version
            and beat.state == BrokerState.SERVING.value
            and not self.liveness.is_silent(broker, session.version)
        )

    # --- inputs -------------------------------------------------------------------------

    def configure(self, settings: NodeSettings, now: float) -> None:
        """Sets the settings that the log now has; the node's name and addresses stay the same."""
        self.settings = settings
        self._duties.configure(settings, now)

    def joined(self, now: float) -> list[Effect]:
        """The view has caught up with the log: at the start, or after it was built anew."""
        self._policies = None
        for broker, session in self.state.sessions():
            self.liveness.session_opened(broker, session.version, now, session.since_ms)
        self._duties.start(self.state, now)
        self.balance.began(self.state)
        effects: list[Effect] = []
        for name in [*self.serving, *(name for name, _ in self.state.units_of(self.me))]:
            effects += self._reconcile(name, now)
        return effects + self.tick(now)

    def folded(self, entries: Iterable[Folded], now: float) -> list[Effect]:
        """Entries were read from the log and the state has been changed accordingly."""
        effects: list[Effect] = []
        touched: dict[str, object] = {}
        self._contact.folded(self.state.next_offset, now)
        for entry in entries:
            if entry.offset < self._handled:
                continue
            self._handled = entry.offset + 1
            self.log_ms = max(self.log_ms, entry.timestamp_ms)
            self.balance.folded(entry, self.log_ms)
            record = entry.record
            accepted = entry.outcome.verdict is Verdict.ACCEPTED
            if record is not None and record.actor == self.me:
                self._contact.read_back()
            if isinstance(record, SessionChange):
                effects += self._session_folded(record, entry, now)
            if accepted and record is not None:
                key = record.key
                self._pacing.accepted(key, record.version)
                self._contact.decided(key)
                touched.update(entry.outcome.changes)
        looks = self.mode is BrokerState.DRAINING
        for name in touched:
            if name.startswith(_OF_POLICIES):
                self._policies = None
            elif name == LEADERSHIP or name.startswith(_OF_SESSIONS):
                looks = True
            self._duties.unit_changed(self.state, name, now)
            effects += self._reconcile(name, now)
        # What time alone makes due waits for the next tick.
        if looks or (self._duties.are_due(now) and self.is_leader()):
            effects += self._look_after(now)
        return effects

    def heard(self, beat: Heartbeat, log_ms: int, now: float) -> None:
        """A heartbeat, possibly this node's own, was read from the `brokers` topic."""
        self.log_ms = max(self.log_ms, log_ms)
        lapsed = beat.state == BrokerState.SAFE.value
        self.liveness.heard(beat, now, log_ms, lapsed=lapsed)
        if self._membership.is_own(beat):
            self.liveness.caught_up(beat.sent_at, now)
            self._contact.read_beat()
        elif beat.broker != self.me and self.lease.holds(now):
            self._contact.heard(beat.next_offset, self.state.next_offset, now)

    def beat_acked(self, beat: Heartbeat, now: float) -> None:
        """A heartbeat is in the log for certain."""
        self._membership.beat_acked(beat, now)

    def closed(self, name: str, now: float) -> list[Effect]:
        """Nothing of the unit is served here any more."""
        self.serving.pop(name, None)
        return list(self._reconcile(name, now))

    def drain(self, now: float) -> list[Effect]:
        """A graceful stop was asked for: give every unit away, then end the session."""
        if self.mode is BrokerState.STOPPED:
            return []
        if not self.session:
            return self._halt("stopped before it had joined", clean=True)
        self._membership.mode = BrokerState.DRAINING
        # Others should know at once that this broker takes no more units.
        return [self._beat(now), *self.tick(now)]

    def stop(self) -> None:
        """Acts no more, because the process is about to end."""
        self._membership.stop()

    def tick(self, now: float) -> list[Effect]:
        """Time has passed; call it at least twice in a heartbeat interval."""
        effects: list[Effect] = []
        if self.mode is BrokerState.STOPPED:
            return effects
        found = self.state.cluster()
        if found is None:
            return list(self._found_cluster(now))
        differs = settings_difference(found, self.settings)
        if differs:
            return self._halt(differs, clean=False)
        if self._contact.lost(now):
            self.lease.end()
        if self._membership.beat_due(now):
            effects.append(self._beat(now))
        if self._membership.leaving:
            return [*effects, *self._leave(now)]
        if not self.lease.holds(now):
            return [*effects, *self._reopen(now)]
        self._pacing.forget(now)
        if self._contact.asks(now):
            effects += self._found_cluster(now)
        for name in list(self._unfinished):
            effects += self._reconcile(name, now)
        effects += self._look_after(now)
        return effects

    # --- sessions and the cluster -------------------------------------------------------

    def _halt(self, reason: str, *, clean: bool) -> list[Effect]:
        self._membership.stop()
        return [Halt(reason, clean=clean)]

    def _beat(self, now: float) -> SendHeartbeat:
        self._contact.sent_beat(now)
        return SendHeartbeat(self._membership.beat(self.state, now))

    def _found_cluster(self, now: float) -> Iterator[Effect]:
        """The first record of a log; on any later place it changes nothing."""
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

    def _reopen(self, now: float) -> Iterator[Effect]:
        record = self._membership.reopening(self.state, self._new_id)
        for effect in self._propose(record, now):
            self._membership.opening(record.proposal_id, now)
            yield effect

    def _leave(self, now: float) -> Iterator[Effect]:
        session = self.state.session(self.me)
        if session is None or not session.open or session.version != self.session:
            yield from self._halt("drained", clean=True)
        else:
            yield from self._propose(self._membership.closing(self._new_id), now)

    def _session_folded(self, record: SessionChange, entry: Folded, now: float) -> list[Effect]:
        if entry.outcome.verdict is not Verdict.ACCEPTED:
            self._membership.rejected(record)
            return []
        self.liveness.session_opened(record.broker, record.version, now, entry.timestamp_ms)
        if record.op is not SessionOp.OPEN:
            self._duties.session_ended(now)
        if record.broker != self.me or self.mode is BrokerState.STOPPED:
            return []
        again = self.session > 0
        match self._membership.accepted(record):
            case SessionOutcome.CLOSED:
                return self._halt("drained", clean=True)
            case SessionOutcome.FENCED:
                return self._halt(
                    f"fenced: another process has opened session {record.version} of broker "
                    f"{self.me}; give each node a broker id of its own",
                    clean=False,
                )
            case SessionOutcome.OPENED:
                if again:
                    # The cause of this broker's silence may have silenced all: wait for the others.
                    self._silence_counts_from = now + self.settings.liveness_timeout_s
                self._contact.renewed()
                effects: list[Effect] = [self._beat(now)]
                for name, _ in list(self.state.units_of(self.me)):
                    effects += self._reconcile(name, now)
                return effects
            case _:
                return []

    # --- units --------------------------------------------------------------------------

    def assign(
        self, name: str, unit: Unit, counts: Mapping[str, int], now: float
    ) -> list[UnitMove]:
        """Proposals that give a free unit to one of the brokers in `counts`; none without a broker.

        A node that chooses itself lets OWN follow at once. OWN is valid if the first proposal wins,
        and is rejected otherwise. So such a node waits for the log once, not twice.
        """
        actor, choose = self.actor(), self.chooser(at_hand=self.me)
        record = propose.assign(actor, name, unit, counts, self._new_id(), choose)
        if record is None:
            return []
        own = propose.claim(actor, unit, record, self._new_id)
        if own is None or not self.lease.holds(now) or not self._pacing.admits(own, now):
            return [record]
        self._contact.proposed(name, now)
        return [record, own]

    def _propose(self, record: Record, now: float) -> Iterator[Effect]:
        if self._pacing.admits(record, now):
            if self.lease.holds(now):
                self._contact.proposed(record.key, now)
            yield AppendRecord(record)

    def _reconcile(self, name: str, now: float) -> Iterator[Effect]:
        """Compares the log's state with this node's actions, and acts on the difference."""
        if name == LEADERSHIP or not self.session:
            return
        unit = self.state.unit(name)
        if unit is not None and unit.state in IN_FLIGHT and self.me in (unit.broker, unit.source):
            self._unfinished[name] = None
        else:
            self._unfinished.pop(name, None)
        serves = self.serving.get(name)
        mine = unit is not None and unit.holder == self.me
        leaving = not mine or (unit is not None and unit.state is UnitState.RELEASING)
        if serves is not None and leaving:
            if serves:
                self.serving[name] = False
                yield CloseUnit(name)
            return
        if unit is None:
            return
        if mine and unit.state is UnitState.OWNED:
            if serves is None:
                self.serving[name] = True
                yield OpenUnit(name)
            return
        step = propose.next_step(
            self.state, self.actor(), name, unit, self.liveness.beat_of, self._new_id
        )
        if step is not None:
            yield from self._propose(step, now)

    # --- the cluster --------------------------------------------------------------------

    def _look_after(self, now: float) -> Iterator[Effect]:
        """Does what a lease obliges to besides serving: watches the others, leads, leaves."""
        if not self.lease.holds(now) or self.mode is BrokerState.STOPPED:
            return
        actor = self.actor()
        records: list[Record] = []
        if self.mode is BrokerState.DRAINING:
            if give_away.nothing_left(self.state, self.me):
                records.append(self._membership.closing(self._new_id))
            elif now >= self._give_away_at:
                # Not at every entry read: this looks at every unit that is left.
                self._give_away_at = now + self.settings.heartbeat_s / 2
                counts = self.candidates(now)
                offered = give_away.offers(self.state, actor, counts, self._new_id, self.chooser())
                records += islice(offered, self.settings.burst)
        elif now >= self._silence_counts_from:
            records += expiries(self.state, actor, self._silent(), self._new_id)
            claim = propose.leadership(self.state, actor, self._new_id())
            if claim is not None:
                records.append(claim)
            if actor.epoch and self._duties.are_due(now):
                counts, choose = self.candidates(now), self.chooser()
                records += self._duties.repairs(
                    self.state, actor, counts, now, self.log_ms, self._new_id, choose
                )
        for record in records:
            yield from self._propose(record, now)

    def _silent(self) -> dict[str, int]:
        return {
            broker: self.liveness.last_heard_ms(broker)
            for broker, session in self.state.sessions()
            if session.open and self.liveness.is_silent(broker, session.version)
        }
