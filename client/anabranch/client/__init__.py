"""The SDK: producers and consumers of scalable topics."""

from anabranch.client.client import Client
from anabranch.client.errors import (
    BufferFullError,
    ClientError,
    ClosedError,
    DeadlineError,
    DeliveryError,
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
from anabranch.client.topic_layout import Segment, TopicLayout

__all__ = [
    "BufferFullError",
    "Client",
    "ClientError",
    "ClosedError",
    "DeadlineError",
    "DeliveryError",
    "DeliveryResult",
    "LayoutWatch",
    "MessageTooLargeError",
    "NodesUnreachableError",
    "Producer",
    "ProducerSettings",
    "RefusedByNodeError",
    "Segment",
    "SerializationError",
    "TopicLayout",
    "TopicNotFoundError",
    "UnknownOutcomeError",
]
