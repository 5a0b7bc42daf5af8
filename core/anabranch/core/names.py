"""Names of tenants, namespaces, topics and brokers, checked once at the edge.

The character set is that of Pulsar's admin interface, so that existing names carry over. It lacks
only the colon, which the log's keys use as a separator.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NewType

from anabranch.core.errors import InvalidInputError

Tenant = NewType("Tenant", str)
Namespace = NewType("Namespace", str)  # tenant/local
Topic = NewType("Topic", str)  # domain://tenant/namespace/local
BrokerId = NewType("BrokerId", str)  # host:webPort, as in GET /admin/v2/brokers/{cluster}

NAME_LENGTH_MAX = 255
PORT_MAX = 65_535
_NAME = re.compile(r"[-=.\w]+", re.ASCII)
_BROKER = re.compile(r"[-.\w\[\]:]+:\d{1,5}", re.ASCII)
SCALABLE_DOMAIN = "topic"
_DOMAINS = ("persistent", "non-persistent", SCALABLE_DOMAIN)
_DOTS = (".", "..")  # any program that shortens a path removes them


def is_valid(check: Callable[..., object], *given: object) -> bool:
    """Tells whether a check, such as those below, accepts a name, or what it is given."""
    try:
        check(*given)
    except InvalidInputError:
        return False
    return True


def _part(kind: str, name: str) -> str:
    if name in _DOTS:
        raise InvalidInputError(f"{kind} name {name!r} is not valid: no path can have such a part")
    if not _NAME.fullmatch(name) or len(name) > NAME_LENGTH_MAX:
        raise InvalidInputError(
            f"{kind} name {name!r} is not valid: use 1 to {NAME_LENGTH_MAX} letters, digits "
            "and the characters - = . _"
        )
    return name


def tenant(name: str) -> Tenant:
    """Checks a tenant's name. Raises InvalidInputError."""
    return Tenant(_part("tenant", name))


def namespace(tenant_name: str, local: str) -> Namespace:
    """Joins and checks a namespace's name. Raises InvalidInputError."""
    return Namespace(f"{_part('tenant', tenant_name)}/{_part('namespace', local)}")


def parse_namespace(name: str) -> Namespace:
    """Checks `tenant/namespace`. Raises InvalidInputError.

    >>> parse_namespace("public/default")
    'public/default'
    """
    parts = name.split("/")
    if len(parts) != 2:
        raise InvalidInputError(f"namespace {name!r} is not of the form tenant/namespace")
    return namespace(*parts)


def tenant_of(namespace_name: Namespace) -> Tenant:
    """The tenant's part of a namespace's name."""
    return Tenant(namespace_name.partition("/")[0])


def topic(namespace_name: Namespace, local: str, domain: str = "persistent") -> Topic:
    """The full name of a topic, which nodes hash. Raises InvalidInputError."""
    if domain not in _DOMAINS:
        raise InvalidInputError(f"topic domain {domain!r} is not one of {', '.join(_DOMAINS)}")
    if not local or local in _DOTS or len(local) > NAME_LENGTH_MAX * 4:
        raise InvalidInputError(
            f"topic name {local!r} is not valid: give 1 to {NAME_LENGTH_MAX * 4} characters"
        )
    return Topic(f"{domain}://{namespace_name}/{local}")


def parse_topic(name: str) -> tuple[Topic, Namespace]:
    """Splits `[domain://]tenant/namespace/local`; without a domain it is a scalable topic's name.

    >>> parse_topic("public/default/orders")
    ('topic://public/default/orders', 'public/default')

    Raises InvalidInputError.
    """
    domain, sep, rest = name.partition("://")
    if not sep:
        domain, rest = SCALABLE_DOMAIN, name
    parts = rest.split("/", 2)
    if len(parts) != 3:
        raise InvalidInputError(f"topic {name!r} is not of the form tenant/namespace/topic")
    home = namespace(parts[0], parts[1])
    return topic(home, parts[2], domain), home


def scalable_topic(tenant_name: str, local_namespace: str, local: str) -> str:
    """Joins and checks `tenant/namespace/name` of a scalable topic. Raises InvalidInputError."""
    return f"{namespace(tenant_name, local_namespace)}/{_part('topic', local)}"


def parse_scalable_topic(name: str) -> str:
    """Checks `[topic://]tenant/namespace/name`; returns it bare. Raises InvalidInputError.

    >>> parse_scalable_topic("topic://public/default/orders")
    'public/default/orders'
    """
    domain, sep, rest = name.partition("://")
    if sep and domain != SCALABLE_DOMAIN:
        raise InvalidInputError(
            f"topic {name!r} is not a scalable topic: those begin with topic://"
        )
    parts = (rest if sep else name).split("/")
    if len(parts) != 3:
        raise InvalidInputError(f"topic {name!r} is not of the form topic://tenant/namespace/topic")
    return scalable_topic(*parts)


def namespace_of(scalable: str) -> Namespace:
    """The namespace of a bare scalable topic name."""
    return Namespace(scalable.rpartition("/")[0])


def full_name(scalable: str) -> Topic:
    """The name that is hashed to the bundle of a scalable topic's controller."""
    return Topic(f"{SCALABLE_DOMAIN}://{scalable}")


def subscription(name: str) -> str:
    """Checks a subscription's name. Raises InvalidInputError."""
    return _part("subscription", name)


def consumer(name: str) -> str:
    """Checks a consumer's name. Raises InvalidInputError."""
    return _part("consumer", name)


def broker_id(name: str) -> BrokerId:
    """Checks a broker id. Raises InvalidInputError."""
    if not _BROKER.fullmatch(name) or int(name.rpartition(":")[2]) > PORT_MAX:
        raise InvalidInputError(f"broker id {name!r} is not of the form host:webPort")
    return BrokerId(name)
