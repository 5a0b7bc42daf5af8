"""A broker's own part in the cluster: its session in the log, the lease on it, its heartbeats."""

from __future__ import annotations

from enum import Enum, auto, unique
from typing import Final

from anabranch.core.bundles.propose import NewId
from anabranch.core.effects import BrokerState, NodeSettings
from anabranch.core.fold.digests import to_hex
from anabranch.core.fold.replica import Replica
from anabranch.core.log.records import Cause, SessionChange, SessionOp
from anabranch.core.sessions.lease import Heartbeat, Lease

_OPENING_MAX: Final = 1_000  # attempts; made at most one a second, lost for good long before


@unique
class SessionOutcome(Enum):
    """The meaning of an accepted session record for the broker that it names."""

    NONE = auto()
    OPENED = auto()  # this process may act
    OVER = auto()  # this process may not act until it has opened another session
    CLOSED = auto()  # this process closed it, after it gave everything away
    FENCED = auto()  # another process uses the same broker id


class ClusterMembership:
    """Leads a broker from JOINING to SERVING, SAFE between sessions; then DRAINING and STOPPED."""

    def __init__(self, settings: NodeSettings) -> None:
        self._settings = settings
        self.lease = Lease(settings.lease_s)
        self.mode = BrokerState.JOINING
        self.session = 0
        self.leaving = False  # a CLOSE was proposed: this process acts no more, whatever it hears
        self._opening: dict[str, float] = {}  # own proposals: id -> when sent
        self._sequence = 0
        self._next_beat = 0.0

    # --- the session --------------------------------------------------------------------

    def reopening(self, state: Replica, new_id: NewId) -> SessionChange:
        """The proposal of another session, for a broker that has no lease."""
        if self.mode is BrokerState.SERVING:
            self.mode = BrokerState.SAFE
        before = state.session(self._settings.broker)
        return self._change(
            SessionOp.OPEN,
            (before.version if before else 0) + 1,
            new_id(),
            0,
            Cause.LEASE_LAPSED if self.session else Cause.START_UP,
        )

    def opening(self, proposal_id: str, now: float) -> None:
        """Notes that the proposal is sent now: the lease counts from here if it wins."""
        self._opening[proposal_id] = now
        # One that lands late is known as an own one for far longer than a log's client tries.
        if len(self._opening) > _OPENING_MAX:
            del self._opening[next(iter(self._opening))]

    def closing(self, new_id: NewId) -> SessionChange:
        """The proposal that ends the session. From here on this process never acts again: a unit
        that it is still given must not be served while others know that it has left.
        """
        self.leaving = True
        self.lease.end()
        return self._change(
            SessionOp.CLOSE, self.session + 1, new_id(), self.session, Cause.SHUTDOWN
        )

    def _change(
        self, op: SessionOp, version: int, proposal_id: str, session: int, cause: Cause
    ) -> SessionChange:
        me, opens = self._settings.broker, op is SessionOp.OPEN
        return SessionChange(
            proposal_id=proposal_id,
            broker=me,
            op=op,
            version=version,
            actor=me,
            session=session,
            cause=cause,
            authorizes=opens and self._settings.authorizes,
            superusers=self._settings.superusers if opens else (),
        )

    def rejected(self, record: SessionChange) -> None:
        """A session record was read that did not win."""
        self._opening.pop(record.proposal_id, None)

    def accepted(self, record: SessionChange) -> SessionOutcome:
        """A session record of this broker was read that won."""
        sent_at = self._opening.pop(record.proposal_id, None)
        self._opening.clear()
        if record.op is not SessionOp.OPEN:
            self.lease.end()
            return SessionOutcome.CLOSED if self.leaving else SessionOutcome.OVER
        if sent_at is None:
            # From an earlier process, as long as this one has no session of its own.
            return SessionOutcome.FENCED if self.session else SessionOutcome.NONE
        self.session = record.version
        self.lease.begin(sent_at)
        if self.mode is not BrokerState.DRAINING:
            self.mode = BrokerState.SERVING
        return SessionOutcome.OPENED

    def stop(self) -> None:
        """Ends the lease: this process takes part no more."""
        self.mode = BrokerState.STOPPED
        self.lease.end()

    # --- heartbeats ---------------------------------------------------------------------

    def beat_due(self, now: float) -> bool:
        return self.session > 0 and now >= self._next_beat

    def beat(self, state: Replica, now: float) -> Heartbeat:
        """The next heartbeat; one that is sent without a lease says so."""
        self._sequence += 1
        self._next_beat = now + self._settings.heartbeat_s
        said = self.mode if self.lease.holds(now) else BrokerState.SAFE
        return Heartbeat(
            broker=self._settings.broker,
            session=self.session,
            sequence=self._sequence,
            sent_at=now,
            state=said.value,
            next_offset=state.next_offset,
            digest=to_hex(state.digest),
            horizon=state.horizon,
            web_url=self._settings.web_url,
            service_url=self._settings.service_url,
            version=self._settings.version,
            web_url_tls=self._settings.web_url_tls,
            service_url_tls=self._settings.service_url_tls,
        )

    def beat_acked(self, beat: Heartbeat, now: float) -> None:
        if beat.session == self.session:
            self.lease.renew(beat.sent_at, now)

    def is_own(self, beat: Heartbeat) -> bool:
        """Tells whether this process sent the heartbeat, in its present session."""
        return beat.broker == self._settings.broker and 0 < beat.session == self.session
