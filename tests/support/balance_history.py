"""What a balancer did, as a history: policies, and bundles that it moves with its reasons."""

from __future__ import annotations

from msgspec.structs import replace

from anabranch.core.entities.placement_policy import PolicyKind
from anabranch.core.entities.unit import Move
from anabranch.core.log.grounds import Grounds, Weighed
from anabranch.core.log.records import Cause, PlacementPolicyChange, PolicyOp
from support.history import BROKERS, History

FIRST, SECOND, THIRD = BROKERS
GRACE_MS = 60_000
SOUND = Grounds("Overloaded", 3, 0.4, 0.2, (Weighed(SECOND, 0.1),), GRACE_MS)


def isolates(history: History, namespaces: str, primary: str, secondary: str = "") -> None:
    """A policy for some namespaces, which is told to the log."""
    before = history.state.placement(PolicyKind.ISOLATION, "gold")
    history.accepted(
        history.next_of(
            PlacementPolicyChange,
            before,
            kind=PolicyKind.ISOLATION,
            name="gold",
            op=PolicyOp.UPDATE if before else PolicyOp.CREATE,
            namespaces=(namespaces,),
            primary=(primary,),
            secondary=(secondary,) if secondary else (),
        )
    )


def sheds(
    history: History,
    name: str,
    to: str,
    cause: Cause = Cause.OVERLOADED,
    grounds: Grounds | None = SOUND,
) -> None:
    """The balancer moves a bundle, all the way."""
    owner = history.unit(name).broker
    record = history.move(name, Move.RELEASE, FIRST, broker=to)
    history.accepted(replace(record, cause=cause, choice=(grounds,) if grounds else ()))
    history.accepted(history.move(name, Move.HAND_OVER, owner))
    history.own(name)
