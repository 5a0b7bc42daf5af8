"""Kafka's names for everything that belongs to a scalable topic: segments and subscriptions'
groups.

Kafka takes letters, digits and `._-`, 249 in all. Tenant, namespace and topic stand between dots,
each a part without a dot of its own. So the beginning that a namespace or a topic has there is
nobody else's, and one rule on it covers what is made later, too. The offset in the log at the end
keeps every name the only one of its kind: no two topics or subscriptions, of the same name or not,
were created at the same offset.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

from anabranch.core.entities.segment import SegmentInfo

# A time-stamp further in the future than this is refused by every segment that takes messages.
FUTURE_MS_MAX: Final = 3_600_000
_LENGTH_MAX: Final = 249
# Of tenant, namespace and topic. Before them come 40 characters of the prefix and a kind, behind
# them `.0000-7fff-` and numbers of 18 and 19 digits.
_PARTS_MAX: Final = (40, 40, 70)
# Of all names after the prefix: kinds that go on, and whole ones.
_KINDS: Final = ("segment", "subscription", "transaction", "archive", "doctor")
_WHOLE: Final = ("wal", "snapshot", "load", "broker-load", "top-bundles", "brokers", "compactor")
_PLAIN: Final = re.compile(r"[a-zA-Z0-9_]+([.-][a-zA-Z0-9_]+)*")
_REFUSED: Final = re.compile(r"[^a-zA-Z0-9_-]")
_MARK_LENGTH: Final = 12


def segment_topic(topic: str, segment: SegmentInfo) -> str:
    """Pulsar's name of one segment.

    >>> from anabranch.core.entities.segment import new_segment
    >>> segment_topic("public/default/orders", new_segment(1, 0, 0x7fff, 2))
    'segment://public/default/orders/0000-7fff-1'
    """
    return f"segment://{topic}/{segment.descriptor}"


def kafka_topic(prefix: str, topic: str, incarnation: int, segment: SegmentInfo) -> str:
    """The Kafka topic of one segment; an adopted one keeps its name.

    >>> from anabranch.core.entities.segment import new_segment
    >>> kafka_topic("anabranch.", "public/default/orders", 42, new_segment(1, 0, 0x7fff, 2))
    'anabranch.segment.public.default.orders.0000-7fff-1.42'
    """
    if segment.legacy_topic:
        return segment.legacy_topic
    return f"{segments_head(prefix)}{stem(topic)}{segment.descriptor}.{incarnation}"


def kafka_group(prefix: str, topic: str, subscription: str, group_offset: int) -> str:
    """The consumer group, or share group, of one subscription.

    >>> kafka_group("anabranch.", "public/default/orders", "billing", 57)
    'anabranch.subscription.public.default.orders.billing.57'
    """
    start, end = f"{groups_head(prefix)}{stem(topic)}", f".{group_offset}"
    name = _REFUSED.sub("_", subscription)
    return f"{start}{name[: _LENGTH_MAX - len(start) - len(end)]}{end}"


def producer_name(prefix: str, topic: str, incarnation: int, mark: int) -> tuple[str, str]:
    """The consumer group and the transactional id of a producer's name, which `mark` stands for.

    The right to consume is also the right to the group. Its end is no number, so that nobody takes
    it for the group of a subscription that is gone.

    >>> producer_name("anabranch.", "public/default/orders", 42, 0xABC)[0]
    'anabranch.subscription.public.default.orders.producer.0000000000000abc-42'
    """
    rest = f"{stem(topic)}producer.{mark:016x}-{incarnation}"
    return f"{groups_head(prefix)}{rest}", f"{transactions_head(prefix)}{rest}"


def segments_head(prefix: str) -> str:
    """The beginning of the Kafka topics of all segments."""
    return f"{prefix}segment."


def groups_head(prefix: str) -> str:
    """The beginning of the groups of all subscriptions."""
    return f"{prefix}subscription."


def transactions_head(prefix: str) -> str:
    """The beginning of transactional ids by which clients of Kafka's own may write to segments."""
    return f"{prefix}transaction."


def names_pattern(prefix: str) -> str:
    r"""A regular expression that all Kafka topics, groups and transactional ids of a cluster match
    wholly, and no others; it means the same in Python, Java and RE2.

    >>> names_pattern("eu.").partition("|")[0]
    '^eu\\.((segment'
    """
    head = prefix.replace(".", r"\.")
    return rf"^{head}(({'|'.join(_KINDS)})\..+|{'|'.join(_WHOLE)})$"


def stem(name: str) -> str:
    """The part after the head, in every Kafka name of a namespace, a topic or its subscriptions.

    No other name of that kind begins so. A dot in a name becomes two hyphens. A part that would be
    too long or ambiguous, or that Kafka does not take, is cut, and begins with a digest and a dot.

    >>> stem("public/default"), stem("public/default/orders"), stem("public/default/orders.eu")
    ('public.default.', 'public.default.orders.', 'public.default.orders--eu.')
    >>> stem("public/default/a=b")
    'public.default..42144f3939c3-a_b.'
    """
    parts = name.split("/", len(_PARTS_MAX) - 1)
    return "".join(f"{_part(each, most)}." for each, most in zip(parts, _PARTS_MAX, strict=False))


def _part(text: str, most: int) -> str:
    plain = text.replace(".", "--")
    if len(plain) <= most and _PLAIN.fullmatch(text):
        return plain
    mark = hashlib.sha256(text.encode()).hexdigest()[:_MARK_LENGTH]
    return f".{mark}-{_REFUSED.sub('_', text)}"[:most]
