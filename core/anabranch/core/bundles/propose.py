"""A broker's proposals for service units: pure functions from the state to proposals.

Each returns records to append, or None when there is nothing to propose. The fold decides whether
they win. Operators' requests that cannot be meant seriously are refused at once, with the reason.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from anabranch.core.bundles.guards import session_open, source_settled
from anabranch.core.entities.unit import IN_FLIGHT, LEADERSHIP, Move, Unit, UnitState
from anabranch.core.log.grounds import Grounds
from anabranch.core.log.records import Cause, SessionChange, SessionOp, UnitMove
from anabranch.core.log.state import StateQueries, StateReader, leader_of
from anabranch.core.ring import split_bundle_name
from anabranch.core.sessions.lease import Heartbeat

NewId = Callable[[], str]
_HARDLY_MORE: Final = 16  # one in so many: nothing where there are few units, which shall be even


class Actor(msgspec.Struct, frozen=True):
    """The proposer: a broker under its session; `epoch` is not 0 while it leads.

    `principal`: the role that asked the broker, "" if the broker acts by itself. `proxied_by`: the
    role of the proxy that spoke for the principal, "" for none.
    """

    broker: str
    session: int
    epoch: int = 0
    principal: str = ""
    proxied_by: str = ""

    def signature(self) -> dict[str, Any]:
        """The fields by which a record says who proposes it."""
        return {
            "actor": self.broker,
            "session": self.session,
            "principal": self.principal,
            "proxied_by": self.proxied_by,
        }


def move(
    actor: Actor,
    name: str,
    unit: Unit | None,
    what: Move,
    proposal_id: str,
    cause: Cause,
    *,
    broker: str = "",
    children: tuple[str, ...] = (),
    evidence: int = 0,
    choice: tuple[Grounds, ...] = (),
) -> UnitMove:
    """A proposal for the unit's next version."""
    return UnitMove(
        proposal_id=proposal_id,
        unit=name,
        move=what,
        version=(unit.version if unit else 0) + 1,
        actor=actor.broker,
        session=actor.session,
        broker=broker,
        epoch=actor.epoch if what in _LEADERS_MOVES else 0,
        evidence=evidence,
        children=children,
        cause=cause,
        choice=choice,
        principal=actor.principal,
        proxied_by=actor.proxied_by,
    )


_LEADERS_MOVES = (Move.TOMBSTONE, Move.RECLAIM, Move.DISCARD, Move.OVERRIDE)


# --- the choice of a broker: fewest units first, rendezvous hashing among equals --------------

Chosen = tuple[str, tuple[Grounds, ...]]  # a broker, "" for none, and what the choice rested on


class Chooser(Protocol):
    """Chooses a unit's broker among those that take units; `counts` has the number of units of
    each.
    """

    def __call__(
        self, unit: str, counts: Mapping[str, int], excluded: Collection[str] = ()
    ) -> Chosen: ...


def by_count(unit: str, counts: Mapping[str, int], excluded: Collection[str] = ()) -> Chosen:
    """Chooses as `choose_broker`, because the brokers' loads are unknown."""
    return choose_broker(unit, counts, [each for each in counts if each not in excluded]), ()


def choose_broker(
    unit: str, counts: Mapping[str, int], candidates: Collection[str], at_hand: str = ""
) -> str:
    """The candidate with the fewest units; "" if there is none.

    `at_hand` is the broker that needs fewer writes and reads. It is chosen if it has hardly more
    units than the candidate with the fewest.

    >>> choose_broker("a/b/0x00000000_0xffffffff", {"x:1": 3, "y:1": 2}, ["x:1", "y:1"])
    'y:1'
    >>> counts = {"x:1": 34, "y:1": 32}
    >>> choose_broker("a/b/0x00000000_0xffffffff", counts, counts, at_hand="x:1")
    'x:1'
    """
    if not candidates:
        return ""
    if at_hand in candidates:
        fewest = min(counts[broker] for broker in candidates)
        if counts[at_hand] <= fewest + fewest // _HARDLY_MORE:
            return at_hand
    return min(candidates, key=lambda broker: (counts[broker], _weight(unit, broker), broker))


def _weight(unit: str, broker: str) -> int:
    return zlib.crc32(f"{unit}@{broker}".encode())


# --- requests -------------------------------------------------------------------------------


def assign(
    actor: Actor,
    name: str,
    unit: Unit,
    counts: Mapping[str, int],
    proposal_id: str,
    choose: Chooser = by_count,
) -> UnitMove | None:
    """A free unit goes to one of the brokers in `counts`; None without a candidate."""
    target, grounds = choose(name, counts)
    if unit.state is not UnitState.FREE or not target:
        return None
    return move(
        actor, name, unit, Move.ASSIGN, proposal_id, Cause.LOOKUP, broker=target, choice=grounds
    )


def claim(actor: Actor, unit: Unit, assigned: UnitMove, new_id: NewId) -> UnitMove | None:
    """Returns the OWN that follows this actor's proposal to assign a free unit to itself.

    Returns None if that proposal gives the unit to another broker, or a former holder has yet to
    see its loss.
    """
    if assigned.broker != actor.broker or unit.source:
        return None
    then = msgspec.structs.replace(unit, version=assigned.version)
    return move(actor, assigned.unit, then, Move.OWN, new_id(), Cause.LOOKUP)


def release(
    actor: Actor,
    name: str,
    unit: Unit,
    destination: str,
    proposal_id: str,
    cause: Cause,
    grounds: tuple[Grounds, ...] = (),
) -> UnitMove | None:
    """An owned unit is given up: to `destination`, or to the next look-up's choice ("").

    None if the unit is not owned, or owned by the destination already.
    """
    if unit.state is not UnitState.OWNED or unit.broker == destination:
        return None
    return move(
        actor, name, unit, Move.RELEASE, proposal_id, cause, broker=destination, choice=grounds
    )


def split(
    actor: Actor, name: str, unit: Unit, positions: Sequence[int], proposal_id: str
) -> UnitMove | None:
    """An owned bundle is divided, in halves when no positions are given.

    None when the unit is not owned. Raises InvalidInputError if it cannot be divided so.
    """
    _, whole = split_bundle_name(name)
    parts = whole.cut_at(positions) if positions else whole.halves()
    if unit.state is not UnitState.OWNED:
        return None
    children = tuple(str(part) for part in parts)
    return move(actor, name, unit, Move.SPLIT, proposal_id, Cause.OPERATOR, children=children)


# --- the owner's own steps ------------------------------------------------------------------


def next_step(
    state: StateReader,
    actor: Actor,
    name: str,
    unit: Unit,
    beat_of: Callable[[str], Heartbeat | None],
    new_id: NewId,
) -> UnitMove | None:
    """Proposes what this broker, which serves nothing of `unit` unless it splits, must log next."""
    me = actor.broker
    what: Move | None = None
    evidence = 0
    if unit.state is UnitState.ASSIGNING and unit.broker == me:
        if unit.source:
            beat = beat_of(unit.source)
            evidence = beat.next_offset if beat else 0
        # Until an overridden holder has seen that, the fold would only reject.
        what = Move.OWN if source_settled(state, unit, evidence) else None
    elif unit.state is UnitState.RELEASING and unit.source == me:
        what = Move.HAND_OVER if unit.broker else Move.FREE
    elif unit.state is UnitState.SPLITTING and unit.broker == me:
        what = Move.SPLIT_COMMIT
    if what is None:
        return None
    return move(actor, name, unit, what, new_id(), Cause.RECONCILE, evidence=evidence)


# --- the leader's duties --------------------------------------------------------------------


def orphans(
    state: StateQueries,
    actor: Actor,
    counts: Mapping[str, int],
    new_id: NewId,
    choose: Chooser = by_count,
) -> Iterator[UnitMove]:
    """Units that answer to a broker whose session is over go to another, or free without one."""
    load = dict(counts)
    for broker, session in state.sessions():
        if session.open:
            continue
        for name, unit in state.units_of(broker):
            if unit.responsible != broker or name == LEADERSHIP:
                continue
            # To its heir, if it was being handed over: a broker that is gone is not in `load`.
            target, grounds = (unit.broker, ()) if unit.broker in load else choose(name, load)
            if target:
                load[target] += 1
            what = Move.RECLAIM if target else Move.DISCARD
            yield move(
                actor, name, unit, what, new_id(), Cause.ORPHAN, broker=target, choice=grounds
            )


def stuck(
    names: Iterable[tuple[str, Unit]],
    waited_s: Callable[[str, Unit], float],
    patience_s: float,
    actor: Actor,
    counts: Mapping[str, int],
    new_id: NewId,
    choose: Chooser = by_count,
) -> Iterator[UnitMove]:
    """Takes units that have been in flight for longer than `patience_s` from brokers that do not
    move them on.
    """
    load = dict(counts)
    for name, unit in names:
        if unit.state not in IN_FLIGHT or waited_s(name, unit) < patience_s:
            continue
        target, grounds = choose(name, load, excluded=(unit.responsible,))
        if target:
            load[target] += 1
            yield move(
                *(actor, name, unit, Move.OVERRIDE, new_id(), Cause.STUCK),
                broker=target,
                choice=grounds,
            )


def tombstones(
    names: Iterable[tuple[str, Unit]], log_ms: int, delay_ms: int, actor: Actor, new_id: NewId
) -> Iterator[UnitMove]:
    """Deleted units leave the log's state after the delay."""
    for name, unit in names:
        if unit.state is UnitState.DELETED and log_ms - unit.since_ms >= delay_ms:
            yield move(actor, name, unit, Move.TOMBSTONE, new_id(), Cause.CLEAN_UP)


def expiry(
    state: StateReader,
    actor: Actor,
    broker: str,
    last_heard_ms: int,
    proposal_id: str,
) -> SessionChange | None:
    """The session of a silent broker ends, if this actor leads, or the silent one does."""
    session = state.session(broker)
    if session is None or not session.open or broker == actor.broker:
        return None
    if not actor.epoch and leader_of(state)[0] != broker:
        return None
    return SessionChange(
        proposal_id=proposal_id,
        broker=broker,
        op=SessionOp.EXPIRE,
        version=session.version + 1,
        actor=actor.broker,
        session=actor.session,
        epoch=actor.epoch,
        evidence_ms=last_heard_ms,
        cause=Cause.SILENCE,
    )


def leadership(state: StateReader, actor: Actor, proposal_id: str) -> UnitMove | None:
    """Anyone takes leadership that is free, or whose holder's session is over."""
    unit = state.unit(LEADERSHIP)
    if unit is None or unit.state is UnitState.FREE:
        what = Move.ELECT
    elif not session_open(state, unit.broker):
        what = Move.SUCCEED
    else:
        return None
    return move(actor, LEADERSHIP, unit, what, proposal_id, Cause.ELECTION)
