"""The SDK: producers and consumers of scalable topics."""

from anabranch.client.batches import BatchStats
from anabranch.client.checkpoint import Checkpoint, CheckpointConsumer
from anabranch.client.client import Client
from anabranch.client.errors import (
    BufferFullError,
    ClientError,
    ClosedError,
    ConsumerBusyError,
    DeadlineError,
    DecryptionError,
    DeliveryError,
    DeserializationError,
    EncryptionError,
    KafkaReadError,
    MessageTooLargeError,
    NodesUnreachableError,
    PositionGoneError,
    RefusedByNodeError,
    SerializationError,
    SessionLapsedError,
    SubscriptionError,
    TopicNotFoundError,
    UnknownOutcomeError,
)
from anabranch.client.layout_watch import LayoutWatch
from anabranch.client.messages import DeliveryResult
from anabranch.client.producer import Producer
from anabranch.client.queue import QueueConsumer
from anabranch.client.queue_messages import QueueBatch, QueueMessage
from anabranch.client.received import Batch, Message
from anabranch.client.settings import (
    ConsumerSettings,
    ProducerSettings,
    QueueSettings,
    ReadSettings,
)
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
