"""Who makes a system that speaks Kafka's protocol, as its names tell, and what that means here.

A seal is proven by the order in which Apache Kafka's brokers put metadata into force, and by a
check within each partition's lock. Other code may give the same answers and prove nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum, unique
from typing import Final

import msgspec


@unique
class Proof(Enum):
    """How far a seal holds there."""

    PROVEN = "proven"
    UNPROVEN = "unproven"
    NONE = "none"


class Make(msgspec.Struct, frozen=True):
    """One maker's system. `host`: a pattern within its brokers' names.

    `partitions`: so many it advises or allows, as told in 2026; 0 if that depends.
    """

    name: str
    host: str
    seal: Proof
    told: str
    partitions: int = 0


APACHE: Final = Make(
    "Apache Kafka",
    "",
    Proof.PROVEN,
    "Apache Kafka, as far as its names tell (Strimzi's too): all works, queues from 4.2 on",
)
_REDPANDA: Final = Make(
    "Redpanda",
    r"\.redpanda\.com$",
    Proof.UNPROVEN,
    "Redpanda: give an odd replicationFactor; there are no queues, and an append that began before "
    "a seal may land after it",
    50_000,
)
# From each maker's own pages, and its users' reports where those say nothing.
MAKES: Final = (
    Make(
        "Event Hubs",
        r"\.servicebus\.windows\.net$",
        Proof.NONE,
        "Event Hubs: topics cannot be made or sealed by Kafka's protocol here, so there are no "
        "scalable topics, whatever the tier: name another Kafka in bootstrapServers",
    ),
    Make(
        "WarpStream",
        r"warpstream",
        Proof.NONE,
        "WarpStream: it has no leaders and no DeleteRecords, and drops settings in silence, so a "
        "seal does not hold: name another Kafka in bootstrapServers",
    ),
    Make(
        "MSK Serverless",
        r"\.kafka-serverless\..*\.amazonaws\.com$",
        Proof.UNPROVEN,
        "MSK Serverless: it lets IAM users in alone and refuses min.insync.replicas, unclean "
        "election and time bounds, so it makes no segment; at most 250 partitions can be made or "
        "deleted in 5 minutes",
        2_400,
    ),
    Make(
        "Confluent Cloud",
        r"\.confluent\.cloud$",
        Proof.UNPROVEN,
        "Confluent Cloud: give replicationFactor=3 and the API key of a service account; Kafka "
        "places segments itself, and looks at no batch a second time by its compression",
        2_048,
    ),
    _REDPANDA,
    Make(
        "AutoMQ",
        r"automq",
        Proof.PROVEN,
        "AutoMQ: Kafka 3.9's code, so no queues; more copies than one are pointless",
    ),
    Make(
        "MSK",
        r"\.kafka\..*\.amazonaws\.com$",
        Proof.PROVEN,
        "MSK: Apache Kafka, with queues from 4.2 on, but none on Express brokers; Kafka's ACLs do "
        "not bind an IAM user",
    ),
    Make(
        "Aiven",
        r"\.aivencloud\.com$",
        Proof.PROVEN,
        "Aiven: Apache Kafka, with queues from 4.2 on; grant rights by its console, and turn "
        "automatic topics off, which are on",
    ),
    Make(
        "Google",
        r"\.cloud\.goog$",
        Proof.PROVEN,
        "Google's Managed Kafka: Apache Kafka behind IAM, which nobody has tried with Anabranch",
    ),
)


def make_of(hosts: Iterable[str], cluster_id: str) -> Make:
    """Returns the make that the names of the brokers and the id of the cluster tell.

    >>> make_of(["pkc-1.eu-west-1.aws.confluent.cloud"], "lkc-1").name
    'Confluent Cloud'
    >>> make_of(["localhost"], "redpanda.0a1b").name
    'Redpanda'
    >>> make_of(["localhost"], "5L6g3nShT-eMCtK--X86sw").name
    'Apache Kafka'
    """
    if cluster_id.startswith("redpanda."):
        return _REDPANDA
    names = [host.lower().rstrip(".") for host in hosts]
    return next(
        (make for make in MAKES if any(re.search(make.host, name) for name in names)), APACHE
    )


def said(make: Make) -> str:
    """Returns the sentence on a make, with the word on its seals that an operator has to know.

    >>> said(_REDPANDA)[:28]
    'seals are unproven. Redpanda'
    """
    return f"seals are unproven. {make.told}" if make.seal is Proof.UNPROVEN else make.told
