"""`authorize`: whether somebody may do something. Pure, total, and no by default.

Everybody who judges asks this function: a node that answers a request, the fold that reads a change
of the log, the audit that reads it again.

What a role has nothing to do with is HIDDEN: to be answered like what does not exist, so that an
answer tells nobody which tenants, namespaces and topics there are. As that goes by names alone,
what exists and what does not is hidden alike.
"""

from __future__ import annotations

from enum import IntEnum, unique

from anabranch.core.security.actions import Need, Right
from anabranch.core.security.grants import Grants
from anabranch.core.security.principal import Principal
from anabranch.core.security.resources import ResourceName


@unique
class Judgement(IntEnum):
    """What `authorize` answers."""

    ALLOWED = 0
    DENIED = 1  # though the role may know of it
    HIDDEN = 2
    PROXY_DENIED = 3  # the role may, and the proxy that asks for it may not


def authorize(
    grants: Grants, principal: Principal, need: Need, resource: ResourceName
) -> Judgement:
    """Whether the principal has what is needed, on this resource.

    Where a proxy speaks for whom it names, both need the right; what is theirs is told first, as if
    they had asked themselves. For itself a proxy has none, whatever was granted to its role.
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
    """Of a role alone, which somebody has."""
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
    """Of somebody who has no more than what was granted on the namespace or the topic."""
    known = False
    for scope in (resource.namespace, resource.topic):
        actions = grants.held.granted(scope, role) if scope else ()
        if actions:
            known = True
            if need.right is Right.GRANTED and not need.any_of.isdisjoint(actions):
                return Judgement.ALLOWED
    return Judgement.DENIED if known else Judgement.HIDDEN
