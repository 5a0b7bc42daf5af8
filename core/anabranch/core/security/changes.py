"""The right that a change of the log needs from its asker, and the check of it.

The fold checks this for a record that it would accept otherwise, so the state just before the
record decides. A right revoked at one offset is refused from the next one on, however early the
proposing node had looked. A record without a principal is a node's own.

Superusers are settings of nodes, which a fold must not read. So each session's first record names
its node's superusers, and says whether the node checks rights at all (docs/decisions/0022). The
node's word also decides that a proxy is one and may speak for others. The log tells the proxy's own
rights, and the proxy needs the right as much as its principal does (docs/decisions/0025).

A change needs the least that any request for it needs. A request may need more, which only a node
can tell: superusers unload a bundle, but a namespace's administrator may delete it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import msgspec

from anabranch.core.entities.subscription import SubscriptionOp
from anabranch.core.entities.topic import Operation, TopicMove
from anabranch.core.entities.unit import LEADERSHIP
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
from anabranch.core.security.authorize import Grants, Judgement, authorize
from anabranch.core.security.principal import NOBODY, Principal
from anabranch.core.security.resources import (
    CLUSTER,
    ResourceName,
    namespace_resource,
    scope_resource,
    tenant_resource,
    topic_resource,
)

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
    """The grants of roles in a folded state."""

    state: StateReader

    def admins(self, tenant: str) -> Collection[str]:
        found = self.state.tenant(tenant)
        return found.admin_roles if found is not None else ()

    def granted(self, scope: str, role: str) -> Collection[str]:
        found = self.state.permission(scope, role)
        return found.actions if found is not None else ()


def need_of(record: Record) -> tuple[Need, ResourceName]:
    """Returns the right that the change needs from its asker, and the resource."""
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
            # A consumer that leaves takes nothing from anybody.
            need = ANYONE if record.op is SubscriptionOp.LEAVE else CONSUMING
            return need, topic_resource(record.topic)
        case PermissionChange():
            return TENANT_ADMIN, scope_resource(record.scope)
        case PlacementPolicyChange() | SettingChange():
            return SUPERUSER, CLUSTER
        case SessionChange() | ClusterSettings() | ArchiveChange():
            return SUPERUSER, CLUSTER  # a node takes no request for it


def _of_unit(record: UnitMove) -> tuple[Need, ResourceName]:
    if record.unit == LEADERSHIP:
        return SUPERUSER, CLUSTER
    return TENANT_ADMIN, namespace_resource(record.unit.rpartition("/")[0])


def asker_of(record: Record) -> Principal:
    """Returns the asker of the change, with their proxy, or NOBODY if a node acts by itself."""
    role: str = getattr(record, "principal", "")
    return Principal(role, getattr(record, "proxied_by", "")) if role else NOBODY


def _closes_or_opens(state: StateReader, record: TopicChange) -> bool:
    """Tells whether others' producers are refused in their own Kafka topic, or let in again."""
    if record.operation is Operation.GIVE_BACK:
        return True
    topic = state.topic(record.topic) if record.move is TopicMove.BEGIN else None
    parts = topic.segments if topic is not None else ()
    return any(part.is_legacy and part.segment_id in record.parents for part in parts)


def is_permitted(state: StateReader, record: Record) -> bool:
    """Tells whether the asker had the right for the change, by the state before it. If they asked
    by a proxy, the proxy needs it too.
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
    if isinstance(record, TopicChange) and _closes_or_opens(state, record):
        need = TENANT_ADMIN
    return authorize(grants, asker, need, resource) is Judgement.ALLOWED
