"""The Kafka topics that may become scalable topics where they lie, and for whom.

A node adopts with its own rights on Kafka, so an operator names what each namespace may adopt. The
setting `adoptableTopics` is a list of entries, `tenant/namespace=name`. A name that ends with `*`
stands for all that begin so. The record of an adoption carries the entry that allows it, and the
fold refuses it without one. So the log says who let it happen (docs/decisions/0032).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations

from anabranch.core import names
from anabranch.core.errors import InvalidInputError

_ANY = "*"


def parse_adoptable(text: str) -> tuple[str, ...]:
    """The entries of `adoptableTopics`, divided by commas. Raises InvalidInputError.

    Two namespaces cannot share a Kafka topic, because two layouts would seal and read it. The last
    `=` divides an entry, because a namespace's name may have one and a Kafka topic's has none.

    >>> parse_adoptable("acme/shop=orders, acme/shop=eu.*")
    ('acme/shop=orders', 'acme/shop=eu.*')
    """
    entries = tuple(each.strip() for each in text.split(",") if each.strip())
    for each in entries:
        home, sep, name = each.rpartition("=")
        if not sep or not name or _ANY in name[:-1]:
            raise InvalidInputError(
                f"{each!r} names no Kafka topic that may be adopted: write tenant/namespace=name, "
                "where * at the end of the name stands for any rest"
            )
        names.parse_namespace(home)
    for one, other in combinations(entries, 2):
        if one.rpartition("=")[0] != other.rpartition("=")[0] and _overlap(one, other):
            raise InvalidInputError(
                f"{one!r} and {other!r} name the same Kafka topics for two namespaces: only one "
                "may adopt a topic"
            )
    return entries


def entry_for(entries: Iterable[str], namespace: str, kafka_topic: str) -> str:
    """The first entry by which the namespace may adopt the Kafka topic; "" for none."""
    return next((each for each in entries if allows(each, namespace, kafka_topic)), "")


def allows(entry: str, namespace: str, kafka_topic: str) -> bool:
    """Tells whether an entry lets the namespace adopt the Kafka topic.

    >>> allows("acme/shop=eu.*", "acme/shop", "eu.orders")
    True
    >>> allows("acme/shop=eu.*", "acme/other", "eu.orders"), allows("", "acme/shop", "eu")
    (False, False)
    """
    return entry.rpartition("=")[0] == namespace and is_named([entry], kafka_topic)


def is_named(entries: Iterable[str], kafka_topic: str) -> bool:
    """Tells whether some namespace may adopt the Kafka topic, by any of the entries.

    >>> is_named(["acme/shop=eu.*"], "eu.orders"), is_named(["acme/shop=eu"], "eu.orders")
    (True, False)
    """
    return any(_stands_for(each.rpartition("=")[2], kafka_topic) for each in entries)


def _stands_for(name: str, kafka_topic: str) -> bool:
    if name.endswith(_ANY):
        return kafka_topic.startswith(name[:-1])
    return bool(name) and kafka_topic == name


def _overlap(one: str, other: str) -> bool:
    first, second = (each.rpartition("=")[2] for each in (one, other))
    if first.endswith(_ANY) and second.endswith(_ANY):
        return first[:-1].startswith(second[:-1]) or second[:-1].startswith(first[:-1])
    wide, plain = (first, second) if first.endswith(_ANY) else (second, first)
    return plain.startswith(wide[:-1]) if wide.endswith(_ANY) else plain == wide
