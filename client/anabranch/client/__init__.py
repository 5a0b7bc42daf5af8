"""The SDK: producers and consumers of scalable topics."""

from anabranch.client.batches import BatchStats
from anabranch.client.checkpoint import Checkpoint, CheckpointConsumer
from anabranch.client.client import Client
from anabranch.client.consumer_errors import (
    ConsumerBusyError,
    DecryptionError,
    DeserializationError,
    KafkaReadError,
    PositionGoneError,
    SessionLapsedError,
    SubscriptionError,
)
from anabranch.client.errors import (
    BufferFullError,
    ClientError,
    ClosedError,
    DeadlineError,
    DeliveryError,
    EncryptionError,
    MessageTooLargeError,
    NodesUnreachableError,
    RefusedByNodeError,
    SerializationError,
    TopicNotFoundError,
    UnknownOutcomeError,
)
from anabranch.client.layout_watch import LayoutWatch
from anabranch.client.messages import DeliveryResult, ProducerSettings
from anabranch.client.producer import Producer
from anabranch.client.queue import QueueConsumer, QueueSettings
from anabranch.client.queue_messages import QueueBatch, QueueMessage
from anabranch.client.reading import ConsumerSettings
from anabranch.client.reads import ReadSettings
from anabranch.client.received import Batch, Message
from anabranch.client.stream import StreamConsumer
from anabranch.client.topic_layout import Segment, TopicLayout

__all__ = [
    "Batch",
    "BatchStats",
    "BufferFullError",
    "Checkpoint",
    "CheckpointConsumer",
    "Client",
    "ClientError",
    "ClosedError",
    "ConsumerBusyError",
    "ConsumerSettings",
    "DeadlineError",
    "DecryptionError",
    "DeliveryError",
    "DeliveryResult",
    "DeserializationError",
    "EncryptionError",
    "KafkaReadError",
    "LayoutWatch",
    "Message",
    "MessageTooLargeError",
    "NodesUnreachableError",
    "PositionGoneError",
    "Producer",
    "ProducerSettings",
    "QueueBatch",
    "QueueConsumer",
    "QueueMessage",
    "QueueSettings",
    "ReadSettings",
    "RefusedByNodeError",
    "Segment",
    "SerializationError",
    "SessionLapsedError",
    "StreamConsumer",
    "SubscriptionError",
    "TopicLayout",
    "TopicNotFoundError",
    "UnknownOutcomeError",
]
