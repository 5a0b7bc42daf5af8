"""The guards of units' moves; the rows of `machine` say which apply and in which order.

`CONTROLLER` guards the moves of topics and subscriptions, which the holder of a bundle proposes.
"""

from __future__ import annotations

from typing import Any, Final

from anabranch.core.entities.unit import Unit
from anabranch.core.errors import InvalidInputError
from anabranch.core.log.records import UnitMove
from anabranch.core.log.state import StateReader, leads
from anabranch.core.log.state_machine import Guard
from anabranch.core.log.verdicts import Verdict
from anabranch.core.names import full_name, namespace_of
from anabranch.core.ring import bundle_name, parse_range, split_bundle_name, tiles, topic_hash

UnitGuard = Guard[Unit, UnitMove]


def session_open(state: StateReader, broker: str) -> bool:
    """Tells whether the broker has an open session."""
    session = state.session(broker)
    return session is not None and session.open


def source_settled(state: StateReader, unit: Unit, evidence: int) -> bool:
    """Tells whether no former holder may still act as the holder of a unit without one.

    `unit.source` names a holder that the leader overrode. The holder has seen that in any of three
    cases: it has folded the log up to the offset `evidence`; its session has ended; or it has
    opened another session since, because it read that back.
    """
    if not unit.source or evidence > unit.since_offset:
        return True
    session = state.session(unit.source)
    return session is None or not session.open or session.since_offset > unit.since_offset


def controller_of(state: StateReader, topic: str) -> tuple[str, str]:
    """The bundle that a topic's name falls into, and the broker that may act for it ("": nobody).

    ("", "") if the namespace does not exist.
    """
    found = state.bundle_at(namespace_of(topic), topic_hash(full_name(topic)))
    return (found[0], found[1].holder) if found is not None else ("", "")


def _children_tile(state: StateReader, unit: Unit, record: UnitMove) -> bool:
    if len(record.children) < 2:
        return False
    try:
        _, whole = split_bundle_name(record.unit)
        return tiles((parse_range(child) for child in record.children), whole)
    except InvalidInputError:
        return False


def child_names(unit_name: str, children: tuple[str, ...]) -> tuple[str, ...]:
    """Full names of a split's children."""
    namespace, _ = split_bundle_name(unit_name)
    return tuple(bundle_name(namespace, parse_range(child)) for child in children)


LEADER: Final = UnitGuard(
    "the actor is the leader, in its epoch",
    lambda s, u, r: leads(s, r.actor, r.epoch),
    Verdict.NOT_LEADER,
)
TARGET_NAMED: Final = UnitGuard(
    "the record names a broker with an open session",
    lambda s, u, r: session_open(s, r.broker),
    Verdict.TARGET_UNKNOWN,
)
TARGET_OR_NONE: Final = UnitGuard(
    "the record names a broker with an open session, or nobody",
    lambda s, u, r: not r.broker or session_open(s, r.broker),
    Verdict.TARGET_UNKNOWN,
)
TARGET_IS_OTHER: Final = UnitGuard(
    "the record's broker is not the owner already",
    lambda s, u, r: r.broker != u.broker,
    Verdict.TARGET_IS_OWNER,
)
UNIT_HAS_TARGET: Final = UnitGuard(
    "the unit has a destination",
    lambda s, u, r: bool(u.broker),
    Verdict.NO_TARGET,
)
NO_TARGET: Final = UnitGuard(
    "the unit has no destination",
    lambda s, u, r: not u.broker,
    Verdict.HAS_TARGET,
)
ACTOR_IS_BROKER: Final = UnitGuard(
    "the actor is the unit's broker",
    lambda s, u, r: r.actor == u.broker,
    Verdict.NOT_OWNER,
)
ACTOR_IS_SOURCE: Final = UnitGuard(
    "the actor is the owner that gives the unit up",
    lambda s, u, r: r.actor == u.source,
    Verdict.NOT_OWNER,
)
HOLDER_GONE: Final = UnitGuard(
    "the session of the responsible broker is over",
    lambda s, u, r: not session_open(s, u.responsible),
    Verdict.HOLDER_ALIVE,
)
SOURCE_SETTLED: Final = UnitGuard(
    "an overridden holder has seen that it no longer is one",
    lambda s, u, r: source_settled(s, u, r.evidence),
    Verdict.SOURCE_UNSETTLED,
)
CHILDREN_TILE: Final = UnitGuard(
    "the record's children tile the unit's range",
    _children_tile,
    Verdict.CHILDREN_INVALID,
)
CHILDREN_NEW: Final = UnitGuard(
    "no child exists yet",
    lambda s, u, r: all(s.unit(c) is None for c in child_names(r.unit, u.children)),
    Verdict.CHILD_EXISTS,
)
CONTROLLER: Final = Guard[Any, Any](  # of topics and of their subscriptions
    "the actor holds the bundle of the topic's name",
    lambda s, t, r: controller_of(s, r.topic)[1] == r.actor,
    Verdict.NOT_CONTROLLER,
)
