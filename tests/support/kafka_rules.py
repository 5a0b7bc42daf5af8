"""What Kafka's StandardAuthorizer makes of rules that allow, and states in which names meet."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from hypothesis import strategies as st

from anabranch.core.entities.permission import Permission, permission_key
from anabranch.core.entities.segment import new_segment
from anabranch.core.entities.subscription import Subscription, SubscriptionKind
from anabranch.core.entities.tenant import NamespaceInfo, Tenant
from anabranch.core.fold.replica import MemoryReplica
from anabranch.core.log.records import namespace_key, subscription_key, tenant_key, topic_key
from anabranch.core.log.state import Change, Entity
from anabranch.core.security.acls import Acl, AclResource
from support.open_topic import topic_of

# One is the beginning of another, as a path or as Kafka sees it; one looks like a segment's end.
TENANTS: Final = ("a", "a.b")
SPACES: Final = ("b", "b.c", "c", "c.0000-ffff-0")
LOCALS: Final = ("c", "x", "x.y", "x=y", "x--y", "x-.y", "x_y", "x.0000-ffff-0", "x." + "l" * 230)
SUBSCRIPTIONS: Final = ("s", "y", "y.z", "y=z")
ROLES: Final = ("ada", "bob", "*", "ANONYMOUS")
WORDS: Final = ("consume", "functions", "produce", "scale", "view")
PREFIX: Final = "river."

NAMESPACES: Final = tuple(f"{tenant}/{each}" for tenant in TENANTS for each in SPACES)
TOPICS: Final = tuple(f"{home}/{each}" for home in NAMESPACES for each in LOCALS)


def allows(
    acls: Iterable[Acl], principal: str, resource: AclResource, name: str, operation: str
) -> bool:
    """Whether Kafka lets the principal, and not because of everybody's rules."""
    return any(
        each.principal == principal
        and each.resource is resource
        and each.operation == operation
        and (name.startswith(each.name) if each.is_prefix else name == each.name)
        for each in acls
    )


def subscription_of(created_offset: int) -> Subscription:
    """A subscription that was created there."""
    return Subscription(1, SubscriptionKind.STREAM, created_offset, (), (), (), 0, 0, "p")


def _changed(state: MemoryReplica, number: int, kind: str, pick: int) -> Change | None:
    """A change that the log could make now; `number` counts as its offset."""
    if kind == "tenant":
        roles = ROLES[:1] if pick % 2 else ()
        return tenant_key(TENANTS[pick % len(TENANTS)]), Tenant(1, roles, (), 0, "p")
    pick, at = divmod(pick, len(NAMESPACES))
    home = NAMESPACES[at]
    there = state.namespace(home) is not None
    if kind == "namespace":
        if state.tenant(home.partition("/")[0]) is None or (there and list(state.topics(home))):
            return None
        return namespace_key(home), None if there else NamespaceInfo(1, 4, 0, "p")
    pick, at = divmod(pick, len(LOCALS))
    name = f"{home}/{LOCALS[at]}"
    topic = state.topic(name)
    if not there or (kind != "topic" and topic is None and kind != "grant"):
        return None
    entity: Entity | None
    if kind == "topic":
        return topic_key(name), None if topic else topic_of(number, [new_segment(0, 0, 0xFFFF, 1)])
    if kind == "split" and topic is not None:
        parts = [new_segment(each, 0, 0xFFFF, 1) for each in range(len(topic.segments) + 1)]
        return topic_key(name), topic_of(topic.incarnation, parts)
    if kind == "subscription":
        each = SUBSCRIPTIONS[pick % len(SUBSCRIPTIONS)]
        entity = None if state.subscription(name, each) else subscription_of(number)
        return subscription_key(name, each), entity
    pick, at = divmod(pick, len(ROLES))
    role, scope = ROLES[at], name if topic is not None and pick % 3 else home
    if state.permission(scope, role) is not None and pick % 2:
        return permission_key(scope, role), None
    words = tuple(word for at, word in enumerate(WORDS) if pick >> at & 1) or WORDS[:1]
    return permission_key(scope, role), Permission(1, words, 0, "p")


def _with_what_is_its_own(state: MemoryReplica, change: Change) -> list[Change]:
    """A namespace or topic that goes takes along what hangs on it, as on the log."""
    key, entity = change
    kind, _, scope = key.partition(":")
    if entity is not None or kind not in ("namespace", "topic"):
        return [change]
    gone = [permission_key(scope, role) for role, _ in state.permissions(scope)]
    if kind == "topic":
        gone += [subscription_key(scope, name) for name, _ in state.subscriptions(scope)]
    return [change, *((each, None) for each in gone)]


KINDS: Final = ("tenant", "namespace", "topic", "split", "subscription", "grant")
steps = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 7_167)), max_size=40)


def played(state: MemoryReplica, taken: Iterable[tuple[str, int]]) -> Iterable[list[Change]]:
    """Makes the changes one by one, and yields each once the state has it."""
    for number, (kind, pick) in enumerate(taken):
        change = _changed(state, number, kind, pick)
        if change is not None:
            changes = _with_what_is_its_own(state, change)
            state.apply(changes)
            yield changes
