"""One predicate for each `Guard`; the arrows' rows say which apply and in which order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from anabranch.core.errors import InvalidInputError
from anabranch.core.records import UnitMove
from anabranch.core.ring import bundle_name, parse_range, split_bundle_name, tiles
from anabranch.core.state import StateReader, leader_of
from anabranch.core.units import Guard, Unit
from anabranch.core.verdicts import Verdict

Predicate = Callable[[StateReader, Unit, UnitMove], bool]


def leads(state: StateReader, actor: str, epoch: int) -> bool:
    """Whether `actor` is the leader and `epoch` its epoch."""
    return leader_of(state) == (actor, epoch) and epoch > 0


def session_open(state: StateReader, broker: str) -> bool:
    """Whether the broker has an open session."""
    session = state.session(broker)
    return session is not None and session.open


def source_settled(state: StateReader, unit: Unit, evidence: int) -> bool:
    """Whether a unit without a holder has nobody left who may still act as one.

    `unit.source` names a holder that was overridden. It has seen that by the offset `evidence`,
    which it has folded up to; by the end of its session; or by opening another one since, because
    it read that back.
    """
    if not unit.source or evidence > unit.since_offset:
        return True
    session = state.session(unit.source)
    return session is None or not session.open or session.since_offset > unit.since_offset


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


GUARDS: Final[dict[Guard, tuple[Predicate, Verdict]]] = {
    Guard.LEADER: (lambda s, u, r: leads(s, r.actor, r.epoch), Verdict.NOT_LEADER),
    Guard.TARGET_NAMED: (lambda s, u, r: session_open(s, r.broker), Verdict.TARGET_UNKNOWN),
    Guard.TARGET_OR_NONE: (
        lambda s, u, r: not r.broker or session_open(s, r.broker),
        Verdict.TARGET_UNKNOWN,
    ),
    Guard.TARGET_IS_OTHER: (lambda s, u, r: r.broker != u.broker, Verdict.TARGET_IS_OWNER),
    Guard.UNIT_HAS_TARGET: (lambda s, u, r: bool(u.broker), Verdict.NO_TARGET),
    Guard.NO_TARGET: (lambda s, u, r: not u.broker, Verdict.HAS_TARGET),
    Guard.ACTOR_IS_BROKER: (lambda s, u, r: r.actor == u.broker, Verdict.NOT_OWNER),
    Guard.ACTOR_IS_SOURCE: (lambda s, u, r: r.actor == u.source, Verdict.NOT_OWNER),
    Guard.HOLDER_GONE: (lambda s, u, r: not session_open(s, u.responsible), Verdict.HOLDER_ALIVE),
    Guard.SOURCE_SETTLED: (
        lambda s, u, r: source_settled(s, u, r.evidence),
        Verdict.SOURCE_UNSETTLED,
    ),
    Guard.CHILDREN_TILE: (_children_tile, Verdict.CHILDREN_INVALID),
    Guard.CHILDREN_NEW: (
        lambda s, u, r: all(s.unit(c) is None for c in child_names(r.unit, u.children)),
        Verdict.CHILD_EXISTS,
    ),
}
