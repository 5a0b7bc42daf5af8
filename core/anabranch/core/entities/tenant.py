"""`Tenant`, `NamespaceInfo`: the log's entries for both; `tenants.machine` says how they change."""

from __future__ import annotations

import msgspec


class Tenant(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A tenant as Pulsar's admin interface shows it."""

    version: int
    admin_roles: tuple[str, ...]
    allowed_clusters: tuple[str, ...]
    since_ms: int
    proposal_id: str


class NamespaceInfo(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A namespace; `bundles` is the count at its creation, its units say its present bundles.

    `auto_scale`: its overrides of its topics' auto-scale policy: name, value, name, value.
    `anti_affinity`: the group of namespaces whose bundles keep apart, "" for none. `limits`: its
    own, by `tenants.limits.TenantLimit`; none for the cluster's.
    """

    version: int
    bundles: int
    since_ms: int
    proposal_id: str
    auto_scale: tuple[str, ...] = ()
    anti_affinity: str = ""
    limits: tuple[int, ...] = ()
