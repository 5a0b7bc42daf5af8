"""`authorize`: the decision whether a principal may do something. Pure, total, and no by default.

Every judge asks this function: a node that answers a request, the fold that reads a change of the
log, the audit that reads it again.

A resource that a role has nothing to do with is HIDDEN. The answer is then the same as for a
resource that does not exist, so that no answer reveals the existing tenants, namespaces and topics.
The check goes by names alone, so existing and missing resources are hidden alike.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import IntEnum, unique
from typing import Protocol

import msgspec

from anabranch.core.security.actions import Need, Right
from anabranch.core.security.principal import Principal
from anabranch.core.security.resources import ResourceName


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
    """The known grants of roles at a judgement. Superusers and proxies are settings.

    A judgement looks the others up by name, so it costs the same for any number of grants.
    `proxies`: the roles that may speak for others (Pulsar's `proxyRoles`).
    """

    held: HeldGrants
    superusers: frozenset[str] = frozenset()
    proxies: frozenset[str] = frozenset()


@unique
class Judgement(IntEnum):
    """The answers of `authorize`."""

    ALLOWED = 0
    DENIED = 1  # though the role may know of it
    HIDDEN = 2
    PROXY_DENIED = 3  # the role may, and the proxy that asks for it may not


def authorize(
    grants: Grants, principal: Principal, need: Need, resource: ResourceName
) -> Judgement:
    """Tells whether the principal has the needed right on this resource.

    If a proxy speaks for a principal, both need the right. The principal's judgement is told first,
    as if it had asked itself. A proxy has no right for itself, whatever was granted to its role.
    """
    role, speaker, right = principal.role, principal.proxied_by, need.right
    if right is Right.PUBLIC:
        return Judgement.ALLOWED
    if not role:
        return Judgement.DENIED
    if speaker and (speaker not in grants.proxies or role in grants.proxies):
        return Judgement.DENIED
    if right is Right.ANYONE:
        return Judgement.ALLOWED
    if role in grants.proxies:
        return Judgement.DENIED
    found = _of_role(grants, role, need, resource)
    if not speaker or found is not Judgement.ALLOWED:
        return found
    by_speaker = _of_role(grants, speaker, need, resource)
    return Judgement.ALLOWED if by_speaker is Judgement.ALLOWED else Judgement.PROXY_DENIED


def _of_role(grants: Grants, role: str, need: Need, resource: ResourceName) -> Judgement:
    """Judges a role alone, which somebody has."""
    right = need.right
    if role in grants.superusers:
        return Judgement.ALLOWED
    tenant = resource.tenant
    if not tenant:
        return Judgement.DENIED
    if role in grants.held.admins(tenant):
        return Judgement.DENIED if right is Right.SUPERUSER else Judgement.ALLOWED
    return _granted(grants, role, need, resource)


def _granted(grants: Grants, role: str, need: Need, resource: ResourceName) -> Judgement:
    """Judges a role that has no more than its grants on the namespace or the topic."""
    known = False
    for scope in (resource.namespace, resource.topic):
        actions = grants.held.granted(scope, role) if scope else ()
        if actions:
            known = True
            if need.right is Right.GRANTED and not need.any_of.isdisjoint(actions):
                return Judgement.ALLOWED
    return Judgement.DENIED if known else Judgement.HIDDEN
