"""The folded state: a replica's entries by key, and the questions that rules may ask of it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Protocol

from anabranch.core.entities.archive import Archive, archive_key
from anabranch.core.entities.cluster import Cluster
from anabranch.core.entities.override import OVERRIDES_PREFIX, SettingOverride, override_key
from anabranch.core.entities.permission import Permission, permission_key
from anabranch.core.entities.placement_policy import PlacementPolicy, PolicyKind, policy_key
from anabranch.core.entities.session import Session
from anabranch.core.entities.subscription import Subscription
from anabranch.core.entities.tenant import NamespaceInfo, Tenant
from anabranch.core.entities.topic import ScalableTopic
from anabranch.core.entities.unit import LEADERSHIP, UNSETTLED, Unit, UnitState
from anabranch.core.log.records import (
    CLUSTER_KEY,
    namespace_key,
    session_key,
    subscription_key,
    tenant_key,
    topic_key,
)
from anabranch.core.names import Namespace
from anabranch.core.ring import after_bundles, split_bundle_name

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


class StateReader(Protocol):
    """The input of guards: nothing else can influence a verdict."""

    def unit(self, name: str) -> Unit | None: ...
    def session(self, broker: str) -> Session | None: ...
    def cluster(self) -> Cluster | None: ...
    def tenant(self, name: str) -> Tenant | None: ...
    def archive(self, name: str) -> Archive | None: ...
    def namespace(self, name: str) -> NamespaceInfo | None: ...
    def bundles(self, namespace: str) -> Iterable[tuple[str, Unit]]:
        """Units of a namespace in ring order, deleted parents included."""
        ...

    def bundle_at(self, namespace: str, hash32: int) -> tuple[str, Unit] | None:
        """The live bundle that holds a hash; None when the namespace does not exist."""
        ...

    def namespaces(self, tenant: str) -> Iterable[str]: ...
    def topic(self, name: str) -> ScalableTopic | None:
        """The scalable topic `tenant/namespace/name`."""
        ...

    def topics(self, namespace: str) -> Iterable[str]:
        """Names, `tenant/namespace/name`, of the namespace's scalable topics, in order."""
        ...

    def topic_states(self, namespace: str) -> Iterable[tuple[str, ScalableTopic]]:
        """Names and states of the same: for who looks once at each of them."""
        ...

    def subscription(self, topic: str, name: str) -> Subscription | None: ...
    def subscriptions(self, topic: str) -> Iterable[tuple[str, Subscription]]:
        """Names and states of a topic's subscriptions, in order."""
        ...

    def placement(self, kind: PolicyKind, name: str) -> PlacementPolicy | None: ...
    def placements(self, kind: PolicyKind) -> Iterable[tuple[str, PlacementPolicy]]:
        """Names and states of the placement policies of a kind, in order."""
        ...

    def override(self, setting: str) -> SettingOverride | None: ...
    def overrides(self) -> Iterable[tuple[str, SettingOverride]]:
        """Names and overrides of the settings that are overridden, in order."""
        ...

    def permission(self, scope: str, role: str) -> Permission | None:
        """The permission of a role on a namespace or a topic, and on that alone."""
        ...

    def permissions(self, scope: str) -> Iterable[tuple[str, Permission]]:
        """Roles and their actions on a namespace or a topic alone, in order."""
        ...


class StateQueries(StateReader, Protocol):
    """Further input of decisions: indexes that no verdict depends on."""

    def units_of(self, broker: str) -> Iterable[tuple[str, Unit]]:
        """Units whose broker or source is this one."""
        ...

    def unit_count(self, broker: str) -> int:
        """Returns how many units name this broker as `broker`."""
        ...

    def unsettled(self) -> Iterable[tuple[str, Unit]]:
        """Units in flight or deleted, because a clean-up may have to look at them."""
        ...

    def sessions(self) -> Iterable[tuple[str, Session]]: ...
    def tenants(self) -> Iterable[str]: ...
    def archives(self) -> Iterable[tuple[str, Archive]]:
        """Ids and states of the archives that are registered, in order."""
        ...

    def grants(self) -> Iterable[tuple[str, str, Permission]]:
        """Scopes and roles of all permissions."""
        ...

    def restless_topics(self) -> Iterable[str]:
        """Topics for which a controller has something to do by itself (`is_restless`)."""
        ...


class FoldedState:
    """A replica in memory, with just the indexes that verdicts need. Spark folds with this one."""

    def __init__(self) -> None:
        self.entities: dict[str, Entity] = {}
        self._bundles: dict[str, dict[str, None]] = {}
        self._bundles_in_order: dict[str, list[str]] = {}
        self._namespaces: dict[str, dict[str, None]] = {}
        self._topics: dict[str, dict[str, None]] = {}
        self._subscriptions: dict[str, dict[str, None]] = {}
        self._placements: dict[str, dict[str, None]] = {}
        self._permissions: dict[str, dict[str, None]] = {}
        self._overrides: dict[str, None] = {}

    def apply(self, changes: Iterable[Change]) -> None:
        """Makes the changes of one accepted record."""
        for key, entity in changes:
            if entity is None:
                if self.entities.pop(key, None) is not None:
                    self._index(key, present=False)
            else:
                if key not in self.entities:
                    self._index(key, present=True)
                self.entities[key] = entity

    def _index(self, key: str, *, present: bool) -> None:
        kind, _, rest = key.partition(":")
        if key.startswith(OVERRIDES_PREFIX):
            if present:
                self._overrides[rest] = None
            else:
                del self._overrides[rest]
            return
        if kind == "namespace":
            group, owner, member = self._namespaces, rest.partition("/")[0], rest
        elif kind == "topic":
            group, owner, member = self._topics, rest.rpartition("/")[0], rest
        elif kind == "subscription":
            group = self._subscriptions
            owner, _, member = rest.rpartition("/")
        elif kind == "placement":
            group = self._placements
            owner, _, member = rest.partition("/")
        elif kind == "permission":
            group = self._permissions
            owner, _, member = rest.partition(":")
        elif key.count("/") == 2:
            group, owner, member = self._bundles, key.rpartition("/")[0], key
            self._bundles_in_order.pop(owner, None)
        else:
            return
        if present:
            group.setdefault(owner, {})[member] = None
        else:
            del group[owner][member]

    def unit(self, name: str) -> Unit | None:
        found = self.entities.get(name)
        return found if isinstance(found, Unit) else None

    def session(self, broker: str) -> Session | None:
        found = self.entities.get(session_key(broker))
        return found if isinstance(found, Session) else None

    def cluster(self) -> Cluster | None:
        found = self.entities.get(CLUSTER_KEY)
        return found if isinstance(found, Cluster) else None

    def tenant(self, name: str) -> Tenant | None:
        found = self.entities.get(tenant_key(name))
        return found if isinstance(found, Tenant) else None

    def archive(self, name: str) -> Archive | None:
        found = self.entities.get(archive_key(name))
        return found if isinstance(found, Archive) else None

    def namespace(self, name: str) -> NamespaceInfo | None:
        found = self.entities.get(namespace_key(name))
        return found if isinstance(found, NamespaceInfo) else None

    def bundles(self, namespace: str) -> Iterator[tuple[str, Unit]]:
        for name in self._in_order(namespace):
            unit = self.unit(name)
            if unit is not None:
                yield name, unit

    def _in_order(self, namespace: str) -> list[str]:
        """Bundles' names, which sort by lower end."""
        found = self._bundles_in_order.get(namespace)
        if found is None:
            found = self._bundles_in_order[namespace] = sorted(self._bundles.get(namespace, ()))
        return found

    def bundle_at(self, namespace: str, hash32: int) -> tuple[str, Unit] | None:
        names = self._in_order(namespace)
        # The last live one that begins at or before the hash.
        for at in range(bisect_right(names, after_bundles(namespace, hash32)) - 1, -1, -1):
            unit = self.unit(names[at])
            if unit is not None and unit.state is not UnitState.DELETED:
                return (names[at], unit) if hash32 in split_bundle_name(names[at])[1] else None
        return None

    def namespaces(self, tenant: str) -> Iterable[str]:
        return sorted(self._namespaces.get(tenant, ()))

    def topic(self, name: str) -> ScalableTopic | None:
        found = self.entities.get(topic_key(name))
        return found if isinstance(found, ScalableTopic) else None

    def topics(self, namespace: str) -> Iterable[str]:
        return sorted(self._topics.get(namespace, ()))

    def topic_states(self, namespace: str) -> Iterator[tuple[str, ScalableTopic]]:
        for name in self.topics(namespace):
            found = self.topic(name)
            if found is not None:
                yield name, found

    def subscription(self, topic: str, name: str) -> Subscription | None:
        found = self.entities.get(subscription_key(topic, name))
        return found if isinstance(found, Subscription) else None

    def subscriptions(self, topic: str) -> Iterator[tuple[str, Subscription]]:
        for name in sorted(self._subscriptions.get(topic, ())):
            found = self.subscription(topic, name)
            if found is not None:
                yield name, found

    def placement(self, kind: PolicyKind, name: str) -> PlacementPolicy | None:
        found = self.entities.get(policy_key(kind, name))
        return found if isinstance(found, PlacementPolicy) else None

    def placements(self, kind: PolicyKind) -> Iterator[tuple[str, PlacementPolicy]]:
        for name in sorted(self._placements.get(kind.name.lower(), ())):
            found = self.placement(kind, name)
            if found is not None:
                yield name, found

    def override(self, setting: str) -> SettingOverride | None:
        found = self.entities.get(override_key(setting))
        return found if isinstance(found, SettingOverride) else None

    def overrides(self) -> Iterator[tuple[str, SettingOverride]]:
        for name in sorted(self._overrides):
            found = self.override(name)
            if found is not None:
                yield name, found

    def permission(self, scope: str, role: str) -> Permission | None:
        found = self.entities.get(permission_key(scope, role))
        return found if isinstance(found, Permission) else None

    def permissions(self, scope: str) -> Iterator[tuple[str, Permission]]:
        for role in sorted(self._permissions.get(scope, ())):
            found = self.permission(scope, role)
            if found is not None:
                yield role, found


class IndexedState(FoldedState):
    """A replica in memory with every index: simulation and tests run whole nodes on it."""

    def __init__(self) -> None:
        super().__init__()
        self._by_broker: dict[str, dict[str, None]] = {}
        self._unsettled: dict[str, None] = {}
        self._brokers: dict[str, None] = {}
        self._restless: dict[str, None] = {}

    def apply(self, changes: Iterable[Change]) -> None:
        changes = list(changes)
        for key, entity in changes:
            before = self.entities.get(key)
            if isinstance(before, Unit):
                for broker in _named(before):
                    self._by_broker[broker].pop(key, None)
                self._unsettled.pop(key, None)
            if isinstance(entity, Unit):
                for broker in _named(entity):
                    self._by_broker.setdefault(broker, {})[key] = None
                if entity.state in UNSETTLED:
                    self._unsettled[key] = None
            elif isinstance(entity, Session):
                self._brokers[key.partition(":")[2]] = None
            if isinstance(entity, ScalableTopic) and entity.is_restless:
                self._restless[key.partition(":")[2]] = None
            elif isinstance(before, ScalableTopic):
                self._restless.pop(key.partition(":")[2], None)
        super().apply(changes)

    def units_of(self, broker: str) -> Iterator[tuple[str, Unit]]:
        for name in sorted(self._by_broker.get(broker, ())):
            unit = self.unit(name)
            if unit is not None:
                yield name, unit

    def unit_count(self, broker: str) -> int:
        return sum(1 for _, unit in self.units_of(broker) if unit.broker == broker)

    def unsettled(self) -> Iterator[tuple[str, Unit]]:
        for name in sorted(self._unsettled):
            unit = self.unit(name)
            if unit is not None:
                yield name, unit

    def sessions(self) -> Iterator[tuple[str, Session]]:
        for broker in sorted(self._brokers):
            session = self.session(broker)
            if session is not None:
                yield broker, session

    def tenants(self) -> Iterable[str]:
        return sorted(key.partition(":")[2] for key in self.entities if key.startswith("tenant:"))

    def archives(self) -> Iterator[tuple[str, Archive]]:
        start = archive_key("")
        for key in sorted(key for key in self.entities if key.startswith(start)):
            found = self.archive(key.removeprefix(start))
            if found is not None:
                yield key.removeprefix(start), found

    def grants(self) -> Iterator[tuple[str, str, Permission]]:
        for scope in self._permissions:
            for role, found in self.permissions(scope):
                yield scope, role, found

    def restless_topics(self) -> Iterator[str]:
        yield from sorted(self._restless)


def _named(unit: Unit) -> tuple[str, ...]:
    """The brokers an index files a unit under."""
    return tuple(name for name in (unit.broker, unit.source) if name)


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
