"""Kafka's names for everything that belongs to a scalable topic: segments and subscriptions'
groups.

Kafka takes letters, digits and `._-`, 249 in all. Any other character of a name becomes `_`, and
the excess of a long name is cut. The offset in the log at the end keeps every name the only one of
its kind: no two topics or subscriptions, of the same name or not, were created at the same offset.
"""

from __future__ import annotations

import re
from typing import Final

from anabranch.core.entities.segment import SegmentInfo, parse_descriptor
from anabranch.core.errors import InvalidInputError

# A time-stamp further in the future than this is refused by every segment that takes messages.
FUTURE_MS_MAX: Final = 3_600_000
_LENGTH_MAX: Final = 249
# The longest end behind a topic's name: `.0000-7fff-` and two numbers of 18 and 19 digits.
_TAIL_MAX: Final = 49
_REFUSED = re.compile(r"[^a-zA-Z0-9._-]")


def segment_topic(topic: str, segment: SegmentInfo) -> str:
    """Pulsar's name of one segment.

    >>> from anabranch.core.entities.segment import new_segment
    >>> segment_topic("public/default/orders", new_segment(1, 0, 0x7fff, 2))
    'segment://public/default/orders/0000-7fff-1'
    """
    return f"segment://{topic}/{segment.descriptor}"


def kafka_topic(prefix: str, topic: str, incarnation: int, segment: SegmentInfo) -> str:
    """The Kafka topic of one segment.

    >>> from anabranch.core.entities.segment import new_segment
    >>> kafka_topic("anabranch.", "public/default/orders", 42, new_segment(1, 0, 0x7fff, 2))
    'anabranch.segment.public.default.orders.0000-7fff-1.42'
    """
    return _fitted(segments_head(prefix), topic, f".{segment.descriptor}.{incarnation}")


def kafka_group(prefix: str, topic: str, subscription: str, group_offset: int) -> str:
    """The consumer group, or share group, of one subscription.

    >>> kafka_group("anabranch.", "public/default/orders", "billing", 57)
    'anabranch.subscription.public.default.orders.billing.57'
    """
    return _fitted(groups_head(prefix), f"{topic}/{subscription}", f".{group_offset}")


def segments_head(prefix: str) -> str:
    """The beginning of the Kafka topics of all segments."""
    return f"{prefix}segment."


def groups_head(prefix: str) -> str:
    """The beginning of the groups of all subscriptions."""
    return f"{prefix}subscription."


def transactions_head(prefix: str) -> str:
    """The beginning of transactional ids by which clients of Kafka's own may write to segments."""
    return f"{prefix}transaction."


def stem(name: str) -> str:
    """The part after the head, in every Kafka name of a namespace, topic or subscription.

    Others' names may begin so as well: a slash becomes the dot that a name may hold.

    >>> stem("public/default"), stem("public/default/orders"), stem("public/default.orders/eu")
    ('public.default.', 'public.default.orders.', 'public.default.orders.eu.')
    """
    return f"{_plain(name)}."


def is_whole(head: str, name_stem: str) -> bool:
    """Tells whether a stem stands whole in every name that it begins, whatever the name's length;
    otherwise it is cut.
    """
    return len(head) + len(name_stem) + _TAIL_MAX <= _LENGTH_MAX


def ends_like_a_segment(name_stem: str) -> bool:
    """Tells whether the stem could begin the name of another topic's segment in Kafka.

    >>> ends_like_a_segment("acme.shop.orders.0000-ffff-0."), ends_like_a_segment("acme.shop.")
    (True, False)
    """
    try:
        parse_descriptor(name_stem[:-1].rpartition(".")[2])
    except InvalidInputError:
        return False
    return True


def _fitted(head: str, name: str, tail: str) -> str:
    return head + _plain(name)[: max(0, _LENGTH_MAX - len(head) - len(tail))] + tail


def _plain(name: str) -> str:
    return _REFUSED.sub("_", name.replace("/", "."))
