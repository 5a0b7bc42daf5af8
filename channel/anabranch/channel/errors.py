"""The errors of the channel; each message names the thing and the remedy."""

from __future__ import annotations

from typing import Final

from anabranch.core.errors import AnabranchError, FaultError
from anabranch.core.security.acls import node_rights


class UnreadableError(AnabranchError):
    """Bytes that no known schema explains."""


NAME_OFFSET: Final = "name its offset in passedOverLogOffsets, on every node and for the audit"
DELETE_KEY: Final = 'see docs/architecture.md, "What strangers write"'


class NewerSchemaError(FaultError):
    """A record of a newer release: going on without it would make this node's state differ."""

    def __init__(self, schema: str, place: str, remedy: str = NAME_OFFSET) -> None:
        super().__init__(
            f"{place} is of schema {schema!r}, which this release does not know: a node of a newer "
            "release wrote it; upgrade this one (it stops here, because skipping the record would "
            "make its state differ from the others'). If there is no such release, a stranger "
            f"wrote it: {remedy}"
        )
        self.schema = schema
        self.place = place


class AppendError(AnabranchError):
    """An append that was not acknowledged."""


class AppendFailedError(AppendError):
    """The record is not in the log and never will be."""


class AppendUnknownError(AppendError):
    """Nobody can say yet whether the record is in the log; its proposal id will settle it."""


class LogTrimmedError(AnabranchError):
    """The log no longer holds the offset that a reader stands at: load the snapshot instead."""

    def __init__(self, topic: str, next_offset: int, first_offset: int) -> None:
        super().__init__(
            f"{topic} has been trimmed: offset {next_offset} was asked for, {first_offset} is the "
            "first that is left; the view must be rebuilt from the snapshot"
        )
        self.next_offset = next_offset
        self.first_offset = first_offset


class LogLostError(FaultError):
    """The log holds less than was read from it, so it is not the log that it was."""


class ProducerLostError(FaultError):
    """Kafka and this process's producer no longer agree on what was appended."""

    def __init__(self, topic: str, reason: str) -> None:
        super().__init__(
            f"the producer for {topic} can send nothing any more ({reason}): start this node "
            "again; what was acknowledged is safe in the log"
        )


class BrokersForgottenError(FaultError):
    """A client of Kafka has no broker left to ask, not even a bootstrap server."""

    def __init__(self, client: str) -> None:
        super().__init__(
            f"{client}, a client of Kafka, was told that there are no brokers, and will not ask "
            "again (confluentinc/librdkafka, issue 5301): start this node again; what was "
            "acknowledged is safe in the log"
        )


class SnapshotLostError(FaultError):
    """The log was trimmed up to an offset that no snapshot stands for."""


class KafkaUnreachableError(AnabranchError):
    """No answer from Kafka in time."""


class KafkaRefusedError(AnabranchError):
    """Kafka answered with an error that trying again will not mend."""


class SegmentExistsError(KafkaRefusedError):
    """A segment's Kafka topic is there already, with other partitions than it must have."""

    def __init__(self, topic: str, found: int, expected: int) -> None:
        if found < expected:
            remedy = "has made it; add the missing partitions, or"
        else:
            remedy = "has made it or added partitions to it, and they cannot be taken away;"
        super().__init__(
            f"topic {topic} has {found} partitions, not {expected}: something else {remedy} delete "
            "it if nothing in it is needed, and see to it that nobody but Anabranch makes topics "
            "of this prefix"
        )


class ReplicasMissingError(KafkaRefusedError):
    """Kafka has fewer brokers than the replication factor asks for."""

    def __init__(self, servers: str, doing: str, said: str) -> None:
        super().__init__(
            f"Kafka at {servers} refused {doing}: {said.rstrip('.')}. Start more Kafka brokers, or "
            "set replicationFactor to what there are"
        )


class KafkaPolicyError(KafkaRefusedError):
    """A rule of the Kafka cluster forbids the topic or its settings."""

    def __init__(self, servers: str, doing: str, said: str) -> None:
        super().__init__(
            f"Kafka at {servers} refused {doing}: {said.rstrip('.')}. Ask who runs the Kafka "
            "cluster to allow it: a policy or a broker setting is against it"
        )


class KafkaAccessError(KafkaRefusedError):
    """Kafka knows this node but does not let it, or does not know it."""

    def __init__(self, servers: str, doing: str, said: str) -> None:
        self.refusal = f"Kafka at {servers} refused {doing}: {said.rstrip('.')}"
        super().__init__(
            f"{self.refusal}. Give this node's principal the right; `anabranch acls --nodes-only` "
            f"prints all. Of what begins with the topicPrefix it needs, {node_rights()}"
        )


class KafkaTooOldError(AnabranchError):
    """A Kafka release that lacks what Anabranch needs."""


class WrongTopicError(AnabranchError):
    """A topic that exists with settings under which the cluster would not be safe."""


class FencedError(AnabranchError):
    """Another leader's compactor has taken over; this one must not write any more."""


class SnapshotFailedError(AnabranchError):
    """A snapshot was not committed, or nobody can say whether; the next one makes up for it."""
