"""Valid histories of a cluster, as the bytes of its topics, and ways to falsify them.

A `History` folds what it appends with the core's own rule, so what it holds is what a cluster could
have written. `now_ms` is the log's clock; every append moves it on a little.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import msgspec

from anabranch.channel.codec import Horizon, encode_entity, encode_record, schema_header
from anabranch.channel.log.entries import Entry
from anabranch.channel.snapshots.state_sums import StateSums
from anabranch.core.bundles import propose
from anabranch.core.bundles.propose import Actor
from anabranch.core.entities.archive import ArchiveOp
from anabranch.core.entities.unit import Move, Unit, UnitState
from anabranch.core.fold.digests import to_hex
from anabranch.core.fold.evolve import evolve
from anabranch.core.fold.replica import MemoryReplica
from anabranch.core.log import records
from anabranch.core.log.outcome import Folded, Outcome
from anabranch.core.log.state import StateReader, leader_of
from anabranch.core.log.verdicts import Verdict
from anabranch.core.sessions.lease import Heartbeat
from support.there import there
from support.world import Versioned, successor

START_MS: Final = 1_760_000_000_000
LEASE_MS: Final = 4_000
LIVENESS_MS: Final = 6_000
HEARTBEAT_MS: Final = 500
BROKERS: Final = ("b1:8080", "b2:8080", "b3:8080")
DEFAULT: Final = "public/default"

_Change = TypeVar("_Change")
Rule = Callable[[StateReader, records.Record, int, int], Outcome]


class SnapshotTaken(msgspec.Struct, frozen=True):
    """What a compactor would have written."""

    values: dict[str, bytes]
    horizon: Horizon

    @property
    def rows(self) -> list[tuple[bytes, bytes | None]]:
        """As they are read from the topic."""
        return [(key.encode(), value) for key, value in self.values.items()]


class History:
    """A log in the making. `rule` decides what is accepted: the core's, or a broken one."""

    def __init__(self, rule: Rule = evolve, step_ms: int = 10) -> None:
        self.rule = rule
        self.step_ms = step_ms
        self.now_ms = START_MS
        self.state = MemoryReplica()
        self.entries: list[Entry] = []
        self.folded: list[Folded] = []
        self.beats: list[tuple[Heartbeat, int]] = []
        self.sessions: dict[str, int] = {}
        self._ids = 0

    # --- the log ------------------------------------------------------------------------

    @property
    def next_offset(self) -> int:
        return self.entries[-1].offset + 1 if self.entries else 0

    def elsewhere(self, name: str) -> str:
        """A broker with a session that does not own the unit."""
        owner = self.unit(name).broker
        return next(broker for broker in BROKERS if broker != owner and self._open(broker))

    def new_id(self) -> str:
        self._ids += 1
        return f"proposal-{self._ids:08d}"

    def append(self, record: records.Record) -> Verdict:
        """Appends a proposal and folds it; answers what became of it."""
        self.now_ms += self.step_ms
        offset = self.next_offset
        value = encode_record(record)
        header = schema_header(record)[1]
        self.entries.append(Entry(offset, self.now_ms, record.key.encode(), value, header))
        outcome = self.rule(self.state, record, offset, self.now_ms)
        self.state.apply(outcome.changes)
        self.state.next_offset = offset + 1
        self.folded.append(Folded(offset, self.now_ms, record, outcome))
        return outcome.verdict

    def accepted(self, record: records.Record | None) -> None:
        """Appends a proposal that must win."""
        if record is None:
            raise AssertionError("there is nothing to propose")
        verdict = self.append(record)
        if verdict is not Verdict.ACCEPTED:
            raise AssertionError(f"{record} was rejected: {verdict.name}")

    def garbage(
        self,
        key: bytes = b"public/default/x",
        value: bytes = b"\x00garbage",
        schema: bytes | None = None,
    ) -> None:
        """Appends an entry that nobody can read."""
        self.now_ms += self.step_ms
        self.entries.append(Entry(self.next_offset, self.now_ms, key, value, schema))
        self.state.next_offset = self.next_offset

    def wait(self, milliseconds: int) -> None:
        """The log's clock goes on."""
        self.now_ms += milliseconds

    def registers(self, archive: str) -> None:
        """An archive of the log is registered."""
        self.accepted(
            records.ArchiveChange(self.new_id(), archive, ArchiveOp.REGISTER, 1, "archive")
        )

    # --- the cluster --------------------------------------------------------------------

    def found(self, brokers: Sequence[str] = BROKERS, bundles: int = 4) -> None:
        """The cluster's first records: its settings, a session for each broker, a leader."""
        self.accepted(
            records.ClusterSettings(
                proposal_id=self.new_id(),
                cluster="standalone",
                version=1,
                actor=brokers[0],
                heartbeat_ms=HEARTBEAT_MS,
                lease_ms=LEASE_MS,
                liveness_timeout_ms=LIVENESS_MS,
                default_bundles=bundles,
            )
        )
        for broker in brokers:
            self.join(broker)
        self.lead(brokers[0])

    def actor(self, broker: str) -> Actor:
        """A broker as a proposer."""
        leader, epoch = leader_of(self.state)
        return Actor(broker, self.sessions.get(broker, 0), epoch if leader == broker else 0)

    def join(self, broker: str, **fields: Any) -> None:
        """A broker opens a session."""
        opened = self.next_of(
            records.SessionChange,
            self.state.session(broker),
            actor=broker,
            session=0,
            broker=broker,
            op=records.SessionOp.OPEN,
            cause=records.Cause.START_UP,
            **fields,
        )
        self.accepted(opened)
        self.sessions[broker] = opened.version

    def lead(self, broker: str) -> None:
        """A broker takes leadership that is free or whose holder is gone."""
        self.accepted(propose.leadership(self.state, self.actor(broker), self.new_id()))

    def expire(self, broker: str, by: str, evidence_ms: int) -> None:
        """A broker's session is ended by another."""
        self.accepted(
            propose.expiry(self.state, self.actor(by), broker, evidence_ms, self.new_id())
        )

    def fail(self, broker: str, by: str) -> None:
        """A broker falls silent; the leader waits, expires it and gives its units to others."""
        last_ms = self.now_ms
        self.wait(LIVENESS_MS + 500)
        self.expire(broker, by, last_ms)
        if leader_of(self.state)[0] != by:
            self.lead(by)
        self.repair(by)

    def repair(self, by: str) -> None:
        """The leader takes the units of brokers that are gone, and their heirs own them."""
        counts = {b: self.state.unit_count(b) for b in BROKERS if self._open(b)}
        moves = list(propose.orphans(self.state, self.actor(by), counts, self.new_id))
        for record in moves:
            self.accepted(record)
        for record in moves:
            self.own(record.unit)

    def _open(self, broker: str) -> bool:
        session = self.state.session(broker)
        return session is not None and session.open

    def next_of(
        self,
        kind: type[_Change],
        before: Versioned | None,
        /,
        actor: str = BROKERS[0],
        **fields: Any,
    ) -> _Change:
        """The record by which a broker makes the next version of what was there before."""
        return successor(kind, before, self.actor(actor), self.new_id(), **fields)

    def tenant(self, name: str) -> None:
        """A new tenant."""
        self.accepted(
            self.next_of(records.TenantChange, None, tenant=name, op=records.PolicyOp.CREATE)
        )

    def namespace(
        self, name: str, bundles: int = 4, op: records.PolicyOp = records.PolicyOp.CREATE
    ) -> None:
        """A new namespace, or the end of one."""
        before, count = self.state.namespace(name), bundles if op is records.PolicyOp.CREATE else 0
        self.accepted(
            self.next_of(records.NamespaceChange, before, namespace=name, op=op, bundles=count)
        )

    # --- units --------------------------------------------------------------------------

    def units(self, namespace: str = DEFAULT) -> list[str]:
        """Names of the live bundles, in ring order."""
        return [
            name
            for name, unit in self.state.bundles(namespace)
            if unit.state is not UnitState.DELETED
        ]

    def unit(self, name: str) -> Unit:
        return there(self.state.unit(name), name)

    def move(
        self,
        name: str,
        what: Move,
        by: str,
        *,
        broker: str = "",
        children: tuple[str, ...] = (),
        evidence: int = 0,
    ) -> records.UnitMove:
        """A proposal for a unit's next version."""
        return propose.move(
            self.actor(by),
            name,
            self.state.unit(name),
            what,
            self.new_id(),
            records.Cause.UNKNOWN,
            broker=broker,
            children=children,
            evidence=evidence,
        )

    def assign(self, name: str, broker: str) -> None:
        """A free unit is assigned and owned."""
        self.accepted(self.move(name, Move.ASSIGN, broker, broker=broker))
        self.own(name)

    def own(self, name: str, evidence: int = 0) -> None:
        """The broker that a unit is assigned to owns it."""
        self.accepted(self.move(name, Move.OWN, self.unit(name).broker, evidence=evidence))

    def transfer(self, name: str, broker: str) -> None:
        """An owned unit goes to another broker."""
        owner = self.unit(name).broker
        self.accepted(self.move(name, Move.RELEASE, owner, broker=broker))
        self.accepted(self.move(name, Move.HAND_OVER, owner))
        self.own(name)

    def unload(self, name: str) -> None:
        """An owned unit becomes free."""
        owner = self.unit(name).broker
        self.accepted(self.move(name, Move.RELEASE, owner))
        self.accepted(self.move(name, Move.FREE, owner))

    def split(self, name: str) -> None:
        """An owned unit is divided into halves."""
        owner = self.unit(name).broker
        self.accepted(propose.split(self.actor(owner), name, self.unit(name), (), self.new_id()))
        self.accepted(self.move(name, Move.SPLIT_COMMIT, owner))

    # --- what is said of it -------------------------------------------------------------

    def beat(self, broker: str, digest: str = "") -> None:
        """A broker's heartbeat, with the digest of the state here (or a false one)."""
        beat = Heartbeat(
            broker=broker,
            session=self.sessions[broker],
            sequence=len(self.beats),
            sent_at=self.now_ms / 1000,
            state="serving",
            next_offset=self.next_offset,
            digest=digest or to_hex(self.state.digest),
            horizon=-1,
            web_url=f"http://{broker}",
            service_url=f"anabranch://{broker}",
            version="0.1.0",
        )
        self.beats.append((beat, self.now_ms))

    def snapshot(self) -> SnapshotTaken:
        """What a compactor would write here."""
        values = {key: encode_entity(entity) for key, entity in self.state.entities.items()}
        rows = [(key.encode(), value) for key, value in values.items()]
        sums = StateSums().plus(rows)
        horizon = Horizon(
            self.next_offset,
            to_hex(self.state.digest),
            self.now_ms,
            BROKERS[0],
            1,
            sums.keys,
            sums.check,
            sums.form,
        )
        return SnapshotTaken(values, horizon)


def mixed(rule: Rule = evolve, rounds: int = 1) -> History:
    """A history with something of everything: tenants, transfers, splits, losers, failures."""
    history = History(rule)
    history.found()
    for tenant in ("acme", "globex"):
        history.tenant(tenant)
        history.namespace(f"{tenant}/orders")
        history.namespace(f"{tenant}/gone", 2)
        history.namespace(f"{tenant}/gone", op=records.PolicyOp.DELETE)
    homes = (DEFAULT, "acme/orders", "globex/orders")
    for home in homes:
        for number, name in enumerate(history.units(home)):
            history.assign(name, BROKERS[number % len(BROKERS)])
    for _ in range(rounds):
        for broker in BROKERS:
            history.beat(broker)
        for home in homes:
            _round(history, home)
        history.garbage()
        history.fail(BROKERS[2], BROKERS[0])
        history.join(BROKERS[2])
        history.beat(BROKERS[0])
    return history


def _round(history: History, home: str) -> None:
    first, second, *_ = history.units(home)
    owner = history.unit(first).broker
    other = next(broker for broker in BROKERS if broker != owner)
    loser = history.move(first, Move.RELEASE, owner, broker=other)
    history.transfer(first, other)
    if history.append(loser) is Verdict.ACCEPTED:
        raise AssertionError("a stale record was accepted")
    history.unload(second)
    history.assign(second, other)
    history.split(first)


def ready(rule: Rule = evolve) -> History:
    """Three brokers; the first leads and owns the first bundle."""
    history = History(rule)
    history.found()
    history.assign(history.units(DEFAULT)[0], BROKERS[0])
    return history
