"""The actions that can be granted to a role, and the needs of requests.

The order is Pulsar's (`AuthorizationProvider`, `PulsarAuthorizationProvider`). A superuser may do
everything. A tenant's administrators may do everything within the tenant, but not change the tenant
itself. Everybody else may do what was granted to their role, on a namespace for all its topics or
on one topic. Pulsar grants `produce` and `consume`, beside others that have no meaning here.
`scale` and `view` are ours. In Pulsar, `scale` takes a tenant's administrator, and `view` comes
with `produce` and `consume` alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum, StrEnum, unique
from typing import Final

import msgspec

from anabranch.core.errors import InvalidInputError


@unique
class Action(StrEnum):
    """An action granted on a namespace or a topic; the words are those of REST and of the log."""

    CONSUME = "consume"  # subscribe, seek, delete a subscription
    PRODUCE = "produce"
    SCALE = "scale"  # split, merge, and say when that happens by itself
    VIEW = "view"  # know that it is there, its layout and its figures


@unique
class Right(IntEnum):
    """The kinds of rights that a request may need, each more than the one before."""

    PUBLIC = 0  # nothing, not even to say who one is
    ANYONE = 1  # to have said who one is
    GRANTED = 2  # one of some actions
    TENANT_ADMIN = 3
    SUPERUSER = 4


class Need(msgspec.Struct, frozen=True):
    """The need of a request. `any_of`: for GRANTED, the actions of which one suffices."""

    right: Right
    any_of: frozenset[Action] = frozenset()


PUBLIC: Final = Need(Right.PUBLIC)
ANYONE: Final = Need(Right.ANYONE)
VIEWING: Final = Need(Right.GRANTED, frozenset(Action))
"""Who may do something with a topic may see it."""
CONSUMING: Final = Need(Right.GRANTED, frozenset((Action.CONSUME,)))
PRODUCING: Final = Need(Right.GRANTED, frozenset((Action.PRODUCE,)))
USING: Final = Need(Right.GRANTED, frozenset((Action.PRODUCE, Action.CONSUME)))
SCALING: Final = Need(Right.GRANTED, frozenset((Action.SCALE,)))
TENANT_ADMIN: Final = Need(Right.TENANT_ADMIN)
SUPERUSER: Final = Need(Right.SUPERUSER)


def parse_actions(words: Iterable[str]) -> tuple[Action, ...]:
    """The actions of these words, once each, in order. Raises InvalidInputError.

    >>> parse_actions(["produce", "consume", "produce"])
    (<Action.CONSUME: 'consume'>, <Action.PRODUCE: 'produce'>)
    """
    found: set[Action] = set()
    for word in words:
        try:
            found.add(Action(word))
        except ValueError:
            raise InvalidInputError(
                f"{word[:100]!a} is no action that can be granted here: give some of "
                f"{', '.join(Action)}"
            ) from None
    if not found:
        raise InvalidInputError(f"no action is given: give some of {', '.join(Action)}")
    return tuple(sorted(found))
