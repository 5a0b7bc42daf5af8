"""`ResourceName`: what a request is about, by the names of it and of what it belongs to."""

from __future__ import annotations

from enum import IntEnum, unique
from typing import Final

import msgspec


@unique
class ResourceLevel(IntEnum):
    """What holds what: a cluster tenants, a tenant namespaces, a namespace topics."""

    CLUSTER = 0
    TENANT = 1
    NAMESPACE = 2
    TOPIC = 3


class ResourceName(msgspec.Struct, frozen=True):
    """A cluster, tenant, namespace or topic; whether there is one of the name does not matter.

    `namespace` is `tenant/namespace`, `topic` is `tenant/namespace/name` of any domain; what lies
    below is "". Made by the functions below, which keep them consistent.
    """

    tenant: str = ""
    namespace: str = ""
    topic: str = ""

    @property
    def level(self) -> ResourceLevel:
        """What it is a name of."""
        if self.topic:
            return ResourceLevel.TOPIC
        if self.namespace:
            return ResourceLevel.NAMESPACE
        return ResourceLevel.TENANT if self.tenant else ResourceLevel.CLUSTER

    def __str__(self) -> str:
        """For people: as a path, `cluster` where it is none.

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
    """What something can be granted on: a namespace, or a topic where there are more parts.

    >>> scope_resource("acme/shop").level.name, scope_resource("acme/shop/orders").level.name
    ('NAMESPACE', 'TOPIC')
    """
    return topic_resource(scope) if scope.count("/") > 1 else namespace_resource(scope)
