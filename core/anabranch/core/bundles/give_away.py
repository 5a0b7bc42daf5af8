"""A graceful stop: a broker gives away the units that answer to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from anabranch.core.bundles.propose import Actor, Chooser, NewId, by_count, move, release
from anabranch.core.entities.unit import LEADERSHIP, Move
from anabranch.core.log.records import Cause, UnitMove
from anabranch.core.log.state import StateQueries


def offers(
    state: StateQueries,
    actor: Actor,
    counts: Mapping[str, int],
    new_id: NewId,
    choose: Chooser = by_count,
) -> Iterator[UnitMove]:
    """Leadership first, so that a leader looks after the cluster meanwhile; then every unit."""
    if actor.epoch:
        lead = state.unit(LEADERSHIP)
        yield move(actor, LEADERSHIP, lead, Move.RESIGN, new_id(), Cause.SHUTDOWN)
    load = dict(counts)
    for name, unit in list(state.units_of(actor.broker)):
        if name == LEADERSHIP or unit.broker != actor.broker:
            continue
        target, grounds = choose(name, load, excluded=(actor.broker,))
        record = release(actor, name, unit, target, new_id(), Cause.SHUTDOWN, grounds)
        if record is not None:
            if target:
                load[target] += 1
            yield record


def nothing_left(state: StateQueries, broker: str) -> bool:
    """Tells whether no unit, leadership included, answers to the broker any more."""
    return all(unit.responsible != broker for _, unit in state.units_of(broker))
