"""The folded state: a replica's entries by key, and the questions that rules may ask of it."""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar

from anabranch.core.entities.archive import Archive, archive_key
from anabranch.core.entities.cluster import Cluster
from anabranch.core.entities.override import SettingOverride, override_key
from anabranch.core.entities.permission import PERMISSIONS_PREFIX, Permission, permission_key
from anabranch.core.entities.placement_policy import PlacementPolicy, PolicyKind, policy_key
from anabranch.core.entities.session import Session
from anabranch.core.entities.subscription import Subscription
from anabranch.core.entities.tenant import NamespaceInfo, Tenant
from anabranch.core.entities.topic import ScalableTopic
from anabranch.core.entities.unit import LEADERSHIP, Unit, UnitState
from anabranch.core.log.records import (
    CLUSTER_KEY,
    namespace_key,
    session_key,
    subscription_key,
    tenant_key,
    topic_key,
)
from anabranch.core.names import Namespace
from anabranch.core.ring import after_bundles

Entity = (
    Unit
    | Session
    | Cluster
    | Tenant
    | NamespaceInfo
    | ScalableTopic
    | Subscription
    | Archive
    | PlacementPolicy
    | SettingOverride
    | Permission
)
Change = tuple[str, Entity | None]  # key and what it holds now; None: gone


_E = TypeVar("_E", bound=Entity)


class StateReader(Protocol):
    """The input of guards: nothing else can influence a verdict.

    A replica finds an entity by its key, and keys by their beginning. The questions are made of
    these two, but for those that a replica can answer sooner.
    """

    @abstractmethod
    def entity(self, key: str) -> Entity | None:
        """What the key holds now."""

    @abstractmethod
    def keys(self, prefix: str) -> Iterable[str]:
        """The keys that begin so, in order; `prefix` is a whole `family_head`."""

    @abstractmethod
    def bundle_at(self, namespace: str, hash32: int) -> tuple[str, Unit] | None:
        """The live bundle that holds a hash; None when the namespace does not exist."""

    def entities_of(self, prefix: str) -> Iterable[tuple[str, Entity]]:
        """The same keys with their entities."""
        for key in self.keys(prefix):
            found = self.entity(key)
            if found is not None:
                yield key, found

    def _one(self, kind: type[_E], key: str) -> _E | None:
        found = self.entity(key)
        return found if isinstance(found, kind) else None

    def _all(self, kind: type[_E], head: str, rest: str = "") -> Iterator[tuple[str, _E]]:
        """Entities whose keys begin with both, in order; names go without the head."""
        for key, found in self.entities_of(head + rest):
            if isinstance(found, kind):
                yield key.removeprefix(head), found

    def _names(self, head: str, rest: str = "") -> Iterator[str]:
        for key in self.keys(head + rest):
            yield key.removeprefix(head)

    def unit(self, name: str) -> Unit | None:
        return self._one(Unit, name)

    def session(self, broker: str) -> Session | None:
        return self._one(Session, session_key(broker))

    def cluster(self) -> Cluster | None:
        return self._one(Cluster, CLUSTER_KEY)

    def tenant(self, name: str) -> Tenant | None:
        return self._one(Tenant, tenant_key(name))

    def archive(self, name: str) -> Archive | None:
        return self._one(Archive, archive_key(name))

    def namespace(self, name: str) -> NamespaceInfo | None:
        return self._one(NamespaceInfo, namespace_key(name))

    def namespaces(self, tenant: str) -> Iterator[str]:
        return self._names(namespace_key(""), f"{tenant}/")

    def bundles(self, namespace: str) -> Iterator[tuple[str, Unit]]:
        """Units of a namespace in ring order, deleted parents included."""
        return self._all(Unit, "", f"{namespace}/")

    def topic(self, name: str) -> ScalableTopic | None:
        """The scalable topic `tenant/namespace/name`."""
        return self._one(ScalableTopic, topic_key(name))

    def topics(self, namespace: str) -> Iterator[str]:
        """Names, `tenant/namespace/name`, of the namespace's scalable topics, in order."""
        return self._names(topic_key(""), f"{namespace}/")

    def topic_states(self, namespace: str) -> Iterator[tuple[str, ScalableTopic]]:
        """Names and states of the same: for who looks once at each of them."""
        return self._all(ScalableTopic, topic_key(""), f"{namespace}/")

    def subscription(self, topic: str, name: str) -> Subscription | None:
        return self._one(Subscription, subscription_key(topic, name))

    def subscriptions(self, topic: str) -> Iterator[tuple[str, Subscription]]:
        """Names and states of a topic's subscriptions, in order."""
        return self._all(Subscription, subscription_key(topic, ""))

    def placement(self, kind: PolicyKind, name: str) -> PlacementPolicy | None:
        return self._one(PlacementPolicy, policy_key(kind, name))

    def placements(self, kind: PolicyKind) -> Iterator[tuple[str, PlacementPolicy]]:
        """Names and states of the placement policies of a kind, in order."""
        return self._all(PlacementPolicy, policy_key(kind, ""))

    def override(self, setting: str) -> SettingOverride | None:
        return self._one(SettingOverride, override_key(setting))

    def overrides(self) -> Iterator[tuple[str, SettingOverride]]:
        """Names and overrides of the settings that are overridden, in order."""
        return self._all(SettingOverride, override_key(""))

    def permission(self, scope: str, role: str) -> Permission | None:
        """The permission of a role on a namespace or a topic, and on that alone."""
        return self._one(Permission, permission_key(scope, role))

    def permissions(self, scope: str) -> Iterator[tuple[str, Permission]]:
        """Roles and their actions on a namespace or a topic alone, in order."""
        return self._all(Permission, permission_key(scope, ""))


class StateQueries(StateReader, Protocol):
    """Further input of decisions: no verdict depends on it."""

    @abstractmethod
    def units_of(self, broker: str) -> Iterable[tuple[str, Unit]]:
        """Units whose broker or source is this one."""

    @abstractmethod
    def unit_count(self, broker: str) -> int:
        """Returns how many units name this broker as `broker`."""

    @abstractmethod
    def unsettled(self) -> Iterable[tuple[str, Unit]]:
        """Units in flight or deleted, because a clean-up may have to look at them."""

    @abstractmethod
    def restless_topics(self) -> Iterable[str]:
        """Topics for which a controller has something to do by itself (`is_restless`)."""

    @abstractmethod
    def grants(self) -> Iterable[tuple[str, str, Permission]]:
        """Scopes and roles of all permissions."""

    def sessions(self) -> Iterator[tuple[str, Session]]:
        return self._all(Session, session_key(""))

    def tenants(self) -> Iterator[str]:
        return self._names(tenant_key(""))

    def archives(self) -> Iterator[tuple[str, Archive]]:
        """Ids and states of the archives that are registered, in order."""
        return self._all(Archive, archive_key(""))


def family_head(key: str) -> str:
    """The beginning that a key shares with those that are asked for together.

    >>> family_head("topic:acme/shop/bills"), family_head("session:b1:8080")
    ('topic:acme/shop/', 'session:')
    >>> family_head("permission:acme/shop:a/b"), family_head("acme/shop/0x00000000_0x40000000")
    ('permission:acme/shop:', 'acme/shop/')
    """
    if key.startswith(PERMISSIONS_PREFIX):
        return key[: key.index(":", len(PERMISSIONS_PREFIX)) + 1]
    return key[: key.rfind("/") + 1] or key[: key.find(":") + 1]


class FoldedState(StateReader):
    """A replica in memory, with just the indexes that verdicts need. Spark folds with this one."""

    def __init__(self) -> None:
        self.entities: dict[str, Entity] = {}
        self._families: dict[str, set[str]] = {}  # keys by their `family_head`
        self._in_order: dict[str, list[str]] = {}  # the same as far as they were asked for

    def apply(self, changes: Iterable[Change]) -> None:
        """Makes the changes of one accepted record."""
        for key, entity in changes:
            if entity is None:
                if self.entities.pop(key, None) is not None:
                    head = family_head(key)
                    self._families[head].discard(key)
                    if not self._families[head]:
                        del self._families[head]
                    self._in_order.pop(head, None)
            else:
                if key not in self.entities:
                    head = family_head(key)
                    self._families.setdefault(head, set()).add(key)
                    self._in_order.pop(head, None)
                self.entities[key] = entity

    def entity(self, key: str) -> Entity | None:
        return self.entities.get(key)

    def keys(self, prefix: str) -> list[str]:
        found = self._in_order.get(prefix)
        if found is None:
            found = sorted(self._families.get(prefix, ()))
            if found:
                self._in_order[prefix] = found
        return found

    def entities_of(self, prefix: str) -> list[tuple[str, Entity]]:
        return [(key, self.entities[key]) for key in self.keys(prefix)]

    def unit(self, name: str) -> Unit | None:
        found = self.entities.get(name)  # nearly every verdict asks
        return found if isinstance(found, Unit) else None

    def session(self, broker: str) -> Session | None:
        found = self.entities.get(session_key(broker))
        return found if isinstance(found, Session) else None

    def bundle_at(self, namespace: str, hash32: int) -> tuple[str, Unit] | None:
        names = self.keys(f"{namespace}/")  # which sort by their lower ends
        # The last live one that begins at or before the hash: live ones tile the ring.
        for at in range(bisect_right(names, after_bundles(namespace, hash32)) - 1, -1, -1):
            unit = self.unit(names[at])
            if unit is not None and unit.state is not UnitState.DELETED:
                return names[at], unit
        return None


def leader_of(state: StateReader) -> tuple[str, int]:
    """The leader's broker id and epoch; ("", 0) if there is none."""
    unit = state.unit(LEADERSHIP)
    if unit is None or unit.state is not UnitState.OWNED:
        return "", 0
    return unit.broker, unit.version


def leads(state: StateReader, actor: str, epoch: int) -> bool:
    """Tells whether `actor` is the leader and `epoch` its epoch."""
    return leader_of(state) == (actor, epoch) and epoch > 0


def live_bundles(state: StateReader, namespace: Namespace | str) -> list[tuple[str, Unit]]:
    """The bundles that tile the namespace now, in ring order."""
    return [
        (name, unit)
        for name, unit in state.bundles(namespace)
        if unit.state is not UnitState.DELETED
    ]


def revoked_with(state: StateReader, scope: str) -> list[Change]:
    """The permissions that end with a namespace or a topic: all that were granted on it."""
    return [(permission_key(scope, role), None) for role, _ in state.permissions(scope)]
