"""`Grants`: the known grants of roles at a judgement.

Superusers and proxies are settings. The log keeps a tenant's administrators and the grants on
namespaces and topics. A judgement looks them up by name, so it costs the same for any number of
grants.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

import msgspec


class HeldGrants(Protocol):
    """The grants of roles that the log keeps."""

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
