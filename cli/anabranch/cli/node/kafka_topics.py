"""KafkaTopics on Kubernetes, as `kubectl` prints them, that would rule Kafka topics of ours."""

from __future__ import annotations

import shlex
from collections.abc import Collection
from typing import Final

import msgspec

from anabranch.cli.topics.words import count_of
from anabranch.core.adoption.adoptable import is_named
from anabranch.core.errors import AnabranchError, InvalidInputError

COMMAND: Final = "kubectl get kafkatopics -A -o json"
_MANAGED: Final = "strimzi.io/managed"
_SHOWN: Final = 5


class _Metadata(msgspec.Struct, frozen=True):
    name: str
    namespace: str = ""
    annotations: dict[str, str] | None = None


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    topic_name: str | None = None


class _Item(msgspec.Struct, frozen=True):
    kind: str
    metadata: _Metadata
    spec: _Spec | None = None

    @property
    def topic(self) -> str:
        """Returns the Kafka topic that it stands for."""
        return (self.spec and self.spec.topic_name) or self.metadata.name

    @property
    def is_managed(self) -> bool:
        """Tells whether Strimzi makes the topic as the KafkaTopic says; it compares this word."""
        return (self.metadata.annotations or {}).get(_MANAGED) != "false"


class _Items(msgspec.Struct, frozen=True):
    items: list[_Item]


class ManagedTopicsError(AnabranchError):
    """An operator manages Kafka topics of ours; the text is the remedy."""


def judged(printed: bytes, prefix: str, adoptable: Collection[str] = ()) -> str:
    """Says how many KafkaTopics were looked at.

    Raises InvalidInputError for what `kubectl` has not printed, and ManagedTopicsError for
    KafkaTopics that are managed and stand for topics with this prefix, or for those that entries
    of `adoptableTopics` name: an adopted topic keeps its name.
    """
    try:
        items = msgspec.json.decode(printed, type=_Items).items
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"this is not what `{COMMAND}` prints: {error}") from None
    topics = [each for each in items if each.kind == "KafkaTopic"]
    ours = [
        each for each in topics if each.topic.startswith(prefix) or is_named(adoptable, each.topic)
    ]
    managed = [each for each in ours if each.is_managed]
    if managed:
        listed = "; ".join(map(_remedy, managed[:_SHOWN]))
        more = f"; and {len(managed) - _SHOWN} more" if len(managed) > _SHOWN else ""
        raise ManagedTopicsError(
            f"Strimzi manages {count_of(len(managed), 'topic')} of nodes"
            f"{', or that they may adopt' if adoptable else ''}, and so undoes their "
            "settings, a seal too. Take them from it in this order, because it deletes the topic "
            f"of a KafkaTopic that it manages: {listed}{more}"
        )
    found = f"{count_of(len(topics), 'KafkaTopic')}, none of which manages a topic {prefix}..."
    found += " or one that may be adopted" if adoptable else ""
    return found + (f"; delete the {len(ours)} that stand for one" if ours else "")


def _remedy(item: _Item) -> str:
    home, name = item.metadata.namespace, item.metadata.name
    at = f"-n {shlex.quote(home)} " if home else ""
    named = f"kafkatopic {shlex.quote(name)}"
    return (
        f"kubectl {at}annotate --overwrite {named} {_MANAGED}=false && kubectl {at}delete {named}"
    )
