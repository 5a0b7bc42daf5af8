"""`PlacementPolicy`: the log's entry for one, and its possible forms.

Two kinds, each known by kind and name. An *isolation policy* names the brokers that the bundles of
some namespaces belong to. A *failure domain* is a set of brokers that fail together.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import IntEnum, unique
from itertools import chain
from typing import Final

import msgspec

from anabranch.core.errors import InvalidInputError
from anabranch.core.names import broker_id

PATTERNS_MAX: Final = 100  # in each list of an isolation policy
PATTERN_LENGTH_MAX: Final = 256
BROKERS_MAX: Final = 10_000  # in a failure domain
MIN_LIMIT_MAX: Final = 1_000_000
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@unique
class PolicyKind(IntEnum):
    """The subject of a placement policy; the numbers are stored, never reused."""

    ISOLATION = 0
    DOMAIN = 1


class PlacementPolicy(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """An operator's rule about the placement of things.

    ISOLATION: `namespaces` and `primary` are patterns of namespaces and of the brokers that are
    theirs. `secondary` has patterns of brokers that help out when fewer than `min_limit` of the
    primary ones are there. `usage_threshold`: ISOLATION: percent; kept and shown. `brokers`:
    DOMAIN: ids, in order.
    """

    version: int
    kind: PolicyKind
    namespaces: tuple[str, ...]
    primary: tuple[str, ...]
    secondary: tuple[str, ...]
    min_limit: int
    usage_threshold: int
    brokers: tuple[str, ...]
    since_ms: int
    proposal_id: str


PLACEMENTS_PREFIX: Final = "placement:"


def policy_key(kind: PolicyKind, name: str) -> str:
    """Log and store key of a placement policy; those of a kind follow one another."""
    return f"{PLACEMENTS_PREFIX}{kind.name.lower()}/{name}"


def check_name(name: str) -> None:
    """Checks the name of a policy. Raises InvalidInputError."""
    if _NAME.fullmatch(name) is None:
        raise InvalidInputError(
            f"policy name {name!r} is not valid: use 1 to 100 letters, digits and . _ -, "
            "a letter or a digit first"
        )


def check_isolation(
    namespaces: Sequence[str],
    primary: Sequence[str],
    secondary: Sequence[str],
    min_limit: int,
    usage_threshold: int,
) -> None:
    """Checks what an isolation policy says, but for its patterns' syntax. Raises
    InvalidInputError.
    """
    _check_count("namespaces", namespaces, least=1)
    _check_count("primary", primary, least=1)
    _check_count("secondary", secondary, least=0)
    for pattern in chain(namespaces, primary, secondary):
        if not 1 <= len(pattern) <= PATTERN_LENGTH_MAX:
            raise InvalidInputError(
                f"a pattern of {len(pattern)} characters is not possible: give 1 to "
                f"{PATTERN_LENGTH_MAX}"
            )
    if not 0 <= min_limit <= MIN_LIMIT_MAX:
        raise InvalidInputError(
            f"min_limit {min_limit} is not possible: give 0 to {MIN_LIMIT_MAX} brokers"
        )
    if not 0 <= usage_threshold <= 100:
        raise InvalidInputError(
            f"usage_threshold {usage_threshold} is not possible: give 0 to 100 percent"
        )


def _check_count(field: str, patterns: Sequence[str], *, least: int) -> None:
    if not least <= len(patterns) <= PATTERNS_MAX:
        raise InvalidInputError(
            f"{field} with {len(patterns)} patterns is not possible: give {least} to {PATTERNS_MAX}"
        )


def check_domain(brokers: Sequence[str]) -> None:
    """Checks the brokers of a failure domain. Raises InvalidInputError."""
    if not 1 <= len(brokers) <= BROKERS_MAX:
        raise InvalidInputError(
            f"a failure domain of {len(brokers)} brokers is not possible: give 1 to {BROKERS_MAX}"
        )
    for broker in brokers:
        broker_id(broker)
    if list(brokers) != sorted(set(brokers)):
        raise InvalidInputError("the brokers of a failure domain are named once each, in order")


def check_group(name: str) -> None:
    """Checks the name of an anti-affinity group. Raises InvalidInputError."""
    if _NAME.fullmatch(name) is None:
        raise InvalidInputError(
            f"anti-affinity group {name!r:.200} is not valid: use 1 to 100 letters, digits and "
            ". _ -, a letter or a digit first"
        )
