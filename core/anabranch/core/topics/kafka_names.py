"""Kafka's names for what belongs to a scalable topic: its segments and its subscriptions' groups.

Kafka takes letters, digits and `._-`, 249 in all; what else a name holds becomes `_` and what is
too long is cut. The offset in the log at the end keeps every name the only one of its kind: no two
topics or subscriptions, of the same name or not, were created at the same offset.
"""

from __future__ import annotations

import re
from typing import Final

from anabranch.core.topics.segment import SegmentInfo

# A time-stamp further in the future than this is refused by every segment that takes messages.
FUTURE_MS_MAX: Final = 3_600_000
_LENGTH_MAX: Final = 249
_REFUSED = re.compile(r"[^a-zA-Z0-9._-]")


def segment_topic(topic: str, segment: SegmentInfo) -> str:
    """Pulsar's name of one segment.

    >>> from anabranch.core.topics.segment import new_segment
    >>> segment_topic("public/default/orders", new_segment(1, 0, 0x7fff, 2))
    'segment://public/default/orders/0000-7fff-1'
    """
    return f"segment://{topic}/{segment.descriptor}"


def kafka_topic(prefix: str, topic: str, incarnation: int, segment: SegmentInfo) -> str:
    """The Kafka topic of one segment.

    >>> from anabranch.core.topics.segment import new_segment
    >>> kafka_topic("anabranch.", "public/default/orders", 42, new_segment(1, 0, 0x7fff, 2))
    'anabranch.segment.public.default.orders.0000-7fff-1.42'
    """
    return _fitted(f"{prefix}segment.", topic, f".{segment.descriptor}.{incarnation}")


def kafka_group(prefix: str, topic: str, subscription: str, created_offset: int) -> str:
    """The consumer group, or share group, of one subscription.

    >>> kafka_group("anabranch.", "public/default/orders", "billing", 57)
    'anabranch.subscription.public.default.orders.billing.57'
    """
    return _fitted(f"{prefix}subscription.", f"{topic}/{subscription}", f".{created_offset}")


def _fitted(head: str, name: str, tail: str) -> str:
    plain = _REFUSED.sub("_", name.replace("/", "."))
    return head + plain[: max(0, _LENGTH_MAX - len(head) - len(tail))] + tail
