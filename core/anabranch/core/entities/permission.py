"""`Permission`: the log's entry for one role's grants on one namespace or topic.

Each is an entity of its own: two grants at the same time do not conflict, and one is found by its
names. It goes with the namespace or topic, so that a new one of the same name has none.

Releases differ in their actions, and verdicts must not. So the log checks only that they are words,
and a release goes by those that it knows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import msgspec

PERMISSIONS_MAX: Final = 1_000  # roles of one namespace or topic
ACTIONS_MAX: Final = 32
_ACTION: Final = re.compile(r"[a-z][a-z_]{0,31}")
PERMISSIONS_PREFIX: Final = "permission:"


class Permission(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The rights of a role; `actions` are words, in order."""

    version: int
    actions: tuple[str, ...]
    since_ms: int
    proposal_id: str


def permission_key(scope: str, role: str) -> str:
    """Log and store key of a role's permission on a scope, `tenant/namespace[/topic]`.

    No scope holds a colon, but a role may.

    >>> permission_key("acme/shop", "ada"), permission_key("acme/shop/orders", "urn:bob")
    ('permission:acme/shop:ada', 'permission:acme/shop/orders:urn:bob')
    """
    return f"{PERMISSIONS_PREFIX}{scope}:{role}"


def are_actions(words: Sequence[str]) -> bool:
    """Tells whether some release could grant these: words, once each, in order.

    >>> are_actions(("consume", "produce")), are_actions(("produce", "consume")), are_actions(())
    (True, False, False)
    """
    if not 0 < len(words) <= ACTIONS_MAX or list(words) != sorted(set(words)):
        return False
    return all(_ACTION.fullmatch(word) for word in words)
