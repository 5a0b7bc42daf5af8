"""`ResourceName`: the subject of a request, by its name and those of its parents."""

from __future__ import annotations

from enum import IntEnum, unique
from typing import Final

import msgspec


@unique
class ResourceLevel(IntEnum):
    """The levels of resources: a cluster holds tenants, a tenant namespaces, a namespace topics."""

    CLUSTER = 0
    TENANT = 1
    NAMESPACE = 2
    TOPIC = 3


class ResourceName(msgspec.Struct, frozen=True):
    """A cluster, tenant, namespace or topic, existing or not.

    `namespace` is `tenant/namespace`, `topic` is `tenant/namespace/name` of any domain. The names
    below the resource's level are "". The functions below make it, because they keep the names
    consistent.
    """

    tenant: str = ""
    namespace: str = ""
    topic: str = ""

    @property
    def level(self) -> ResourceLevel:
        """The level that it names."""
        if self.topic:
            return ResourceLevel.TOPIC
        if self.namespace:
            return ResourceLevel.NAMESPACE
        return ResourceLevel.TENANT if self.tenant else ResourceLevel.CLUSTER

    def __str__(self) -> str:
        """For people: its path, or `cluster`.

        >>> str(topic_resource("acme/shop/orders")), str(CLUSTER)
        ('acme/shop/orders', 'cluster')
        """
        return self.topic or self.namespace or self.tenant or "cluster"


CLUSTER: Final = ResourceName()


def tenant_resource(tenant: str) -> ResourceName:
    """A tenant."""
    return ResourceName(tenant)


def namespace_resource(namespace: str) -> ResourceName:
    """A namespace, `tenant/namespace`."""
    return ResourceName(namespace.partition("/")[0], namespace)


def topic_resource(topic: str) -> ResourceName:
    """A topic, `tenant/namespace/name`; the name may hold slashes, as a persistent topic's may."""
    tenant, _, rest = topic.partition("/")
    return ResourceName(tenant, f"{tenant}/{rest.partition('/')[0]}", topic)


def scope_resource(scope: str) -> ResourceName:
    """The resource of a grant: a namespace, or a topic if the scope has more parts.

    >>> scope_resource("acme/shop").level.name, scope_resource("acme/shop/orders").level.name
    ('NAMESPACE', 'TOPIC')
    """
    return topic_resource(scope) if scope.count("/") > 1 else namespace_resource(scope)
