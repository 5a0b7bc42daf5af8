"""`Grants`: what is known of roles when a request is judged.

Superusers and proxies are settings. A tenant's administrators and what was granted on namespaces
and topics is kept by the log, and asked of it by name: so a judgement costs the same however many
grants there are.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

import msgspec


class HeldGrants(Protocol):
    """What the log keeps of roles."""

    def admins(self, tenant: str) -> Collection[str]:
        """The administrators of a tenant; none of one that is not there."""
        ...

    def granted(self, scope: str, role: str) -> Collection[str]:
        """The actions that were granted to a role on a namespace or a topic, by its name.

        There may be words among them that only another release knows: they grant nothing here.
        """
        ...


class Grants(msgspec.Struct, frozen=True):
    """`proxies`: the roles that may speak for others (Pulsar's `proxyRoles`)."""

    held: HeldGrants
    superusers: frozenset[str] = frozenset()
    proxies: frozenset[str] = frozenset()
