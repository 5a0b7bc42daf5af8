"""The limits on the number of a tenant's things; names and meanings are Pulsar's.

The fold judges, so that no two nodes can pass a limit together. It must not read settings of nodes.
So a record that adds one carries the limit of its node, and a namespace's own limit goes first.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum, unique
from itertools import islice
from typing import Final

from anabranch.core.log.state import StateReader


@unique
class TenantLimit(IntEnum):
    """Named as the settings are; the numbers are stored, as places in a namespace's limits."""

    MAX_TOPICS_PER_NAMESPACE = 0
    MAX_SUBSCRIPTIONS_PER_TOPIC = 1
    MAX_CONSUMERS_PER_SUBSCRIPTION = 2
    MAX_NAMESPACES_PER_TENANT = 3  # only the cluster has it


OF_NAMESPACES: Final = tuple(TenantLimit)[: TenantLimit.MAX_NAMESPACES_PER_TENANT]
LIMIT_MAX: Final = 2**31 - 1  # Pulsar's own
_UNSET: Final = -1


def own_limit(limits: tuple[int, ...], what: TenantLimit) -> int | None:
    """The namespace's own limit; None if the cluster's counts.

    >>> own_limit((), OF_NAMESPACES[0]), own_limit((0, 5, -1), OF_NAMESPACES[1])
    (None, 5)
    """
    return limits[what] if limits and limits[what] != _UNSET else None


def with_limit(limits: tuple[int, ...], what: TenantLimit, own: int | None) -> tuple[int, ...]:
    """The namespace's own limits, with one of them changed.

    >>> with_limit((), OF_NAMESPACES[1], 5), with_limit((-1, 5, -1), OF_NAMESPACES[1], None)
    ((-1, 5, -1), ())
    """
    after = list(limits or (_UNSET,) * len(OF_NAMESPACES))
    after[what] = _UNSET if own is None else own
    return tuple(after) if any(each != _UNSET for each in after) else ()


def are_limits(limits: tuple[int, ...]) -> bool:
    """Tells whether a namespace can have these."""
    return not limits or (
        len(limits) == len(OF_NAMESPACES)
        and all(_UNSET <= each <= LIMIT_MAX for each in limits)
        and any(each != _UNSET for each in limits)
    )


def limit_in_force(state: StateReader, namespace: str, what: TenantLimit, cluster_s: int) -> int:
    """The namespace's own limit, or else the cluster's; 0: any number."""
    info = state.namespace(namespace)
    own = own_limit(info.limits, what) if info is not None else None
    return cluster_s if own is None else own


def has_room(limit: int, present: Iterable[object]) -> bool:
    """Tells whether one more may join the present ones."""
    return limit <= 0 or sum(1 for _ in islice(present, limit)) < limit
