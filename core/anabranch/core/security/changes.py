"""What a change of the log needs of whoever asked for it, and whether they had it.

The fold asks this of a record that it would accept otherwise, so the state just before the record
decides: what is revoked at one offset is refused from the next one on, however early the node that
proposes had looked. A record without a principal is a node's own.

Superusers are settings of nodes, which a fold must not read. So each session's first record names
those that its node goes by, and says whether it asks at all (docs/decisions/0022). That a proxy is
one, which may speak for others, is the word of the node that believed it; what it may, the log
tells, and it needs the right as whoever it speaks for does (docs/decisions/0025).

A change needs the least that any request needs which makes it: what more a request needs (a bundle
is unloaded by superusers, but a namespace's administrator may delete it) only a node can tell.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import msgspec

from anabranch.core.bundles.unit import LEADERSHIP
from anabranch.core.log.records import (
    ArchiveChange,
    ClusterSettings,
    NamespaceChange,
    PermissionChange,
    PlacementPolicyChange,
    Record,
    SessionChange,
    SettingChange,
    SubscriptionChange,
    TenantChange,
    TopicChange,
    UnitMove,
)
from anabranch.core.log.state import StateReader
from anabranch.core.security.actions import (
    ANYONE,
    CONSUMING,
    SCALING,
    SUPERUSER,
    TENANT_ADMIN,
    Need,
)
from anabranch.core.security.authorize import Judgement, authorize
from anabranch.core.security.grants import Grants
from anabranch.core.security.principal import NOBODY, Principal
from anabranch.core.security.resources import (
    CLUSTER,
    ResourceName,
    namespace_resource,
    scope_resource,
    tenant_resource,
    topic_resource,
)
from anabranch.core.subscriptions.subscription import SubscriptionOp
from anabranch.core.topics.topic import TopicMove

_NO_ROLES: Final[frozenset[str]] = frozenset()
_OF_TOPICS: Final = {
    TopicMove.CREATE: TENANT_ADMIN,
    TopicMove.DELETE: TENANT_ADMIN,
    TopicMove.UPDATE: TENANT_ADMIN,
    TopicMove.BEGIN: SCALING,
    TopicMove.POLICY: SCALING,
    TopicMove.LOST: TENANT_ADMIN,
}


class FoldedGrants(msgspec.Struct, frozen=True):
    """What a folded state keeps of roles."""

    state: StateReader

    def admins(self, tenant: str) -> Collection[str]:
        found = self.state.tenant(tenant)
        return found.admin_roles if found is not None else ()

    def granted(self, scope: str, role: str) -> Collection[str]:
        found = self.state.permission(scope, role)
        return found.actions if found is not None else ()


def need_of(record: Record) -> tuple[Need, ResourceName]:
    """What the change needs of whoever asked for it, and on what."""
    match record:
        case UnitMove():
            return _of_unit(record)
        case TenantChange():
            return SUPERUSER, tenant_resource(record.tenant)
        case NamespaceChange():
            return TENANT_ADMIN, namespace_resource(record.namespace)
        case TopicChange():
            return _OF_TOPICS.get(record.move, SUPERUSER), topic_resource(record.topic)
        case SubscriptionChange():
            # Who gives back what they have takes nothing from anybody.
            need = ANYONE if record.op is SubscriptionOp.LEAVE else CONSUMING
            return need, topic_resource(record.topic)
        case PermissionChange():
            return TENANT_ADMIN, scope_resource(record.scope)
        case PlacementPolicyChange() | SettingChange():
            return SUPERUSER, CLUSTER
        case SessionChange() | ClusterSettings() | ArchiveChange():
            return SUPERUSER, CLUSTER  # nobody can ask a node for it


def _of_unit(record: UnitMove) -> tuple[Need, ResourceName]:
    if record.unit == LEADERSHIP:
        return SUPERUSER, CLUSTER
    return TENANT_ADMIN, namespace_resource(record.unit.rpartition("/")[0])


def asker_of(record: Record) -> Principal:
    """Whoever asked for the change, and by which proxy; NOBODY where a node acts by itself."""
    role: str = getattr(record, "principal", "")
    return Principal(role, getattr(record, "proxied_by", "")) if role else NOBODY


def is_permitted(state: StateReader, record: Record) -> bool:
    """Whether whoever asked for the change had what it needs, by the state before it; and so had
    the proxy, if they asked by one.
    """
    asker = asker_of(record)
    if not asker.role:
        return True
    session = state.session(record.actor)
    if session is None or not session.authorizes:
        return True
    proxies = frozenset((asker.proxied_by,)) if asker.proxied_by else _NO_ROLES
    grants = Grants(FoldedGrants(state), frozenset(session.superusers), proxies)
    need, resource = need_of(record)
    return authorize(grants, asker, need, resource) is Judgement.ALLOWED
