"""The SDK: producers and consumers of scalable topics."""

from anabranch.access import Credentials, Tls, Token
from anabranch.client._client import Client
from anabranch.client._consumer.checkpoint import Checkpoint, CheckpointConsumer, PositionOf
from anabranch.client._consumer.dead_letters import DeadLetter, DeadLetterReason
from anabranch.client._consumer.messages import Batch, Message
from anabranch.client._errors import (
    AuthenticationError,
    BucketLostError,
    BufferFullError,
    ClientError,
    ClosedError,
    ConsumerBusyError,
    ConsumerFencedError,
    CredentialsError,
    DeadlineError,
    DecryptionError,
    DeliveryError,
    DeserializationError,
    DuplicatesUnknownError,
    EncryptionError,
    ForbiddenError,
    ForkedError,
    HandlerError,
    KafkaReadError,
    MessageTooLargeError,
    NodesUnreachableError,
    PositionGoneError,
    ProducerBusyError,
    ProducerFencedError,
    RefusedByNodeError,
    SegmentMissingError,
    SerializationError,
    SessionLapsedError,
    SubscriptionError,
    TlsError,
    TopicNotFoundError,
    UnknownOutcomeError,
    WrongLoopError,
)
from anabranch.client._many.consumer import StreamTopicsConsumer
from anabranch.client._producer.messages import BatchStats, DeliveryResult, OnDelivery
from anabranch.client._producer.producer import Producer
from anabranch.client._queue.consumer import QueueConsumer
from anabranch.client._queue.messages import QueueBatch, QueueMessage
from anabranch.client._queue.run import QueueRunOptions, QueueRunSettings
from anabranch.client._settings import (
    ConsumerOptions,
    ConsumerSettings,
    DeadLetterPolicy,
    ProducerOptions,
    ProducerSettings,
    QueueOptions,
    QueueSettings,
    ReadSettings,
)
from anabranch.client._stream.consumer import StreamConsumer
from anabranch.client._stream.part import BlockedKey
from anabranch.client._stream.retry import Again, Backoff, BatchFailed, Reject, Retry
from anabranch.client._stream.settings import Handler, RunOptions, RunSettings
from anabranch.client._stream.stats import BucketWork, WorkStats
from anabranch.client._stream.work import Work
from anabranch.client._topics.layout import Segment, TopicLayout
from anabranch.client._topics.list_watch import TopicListWatch
from anabranch.client._topics.topic_list import ListChange, TopicSelection
from anabranch.client._topics.watch import LayoutWatch

__all__ = [
    "Again",
    "AuthenticationError",
    "Backoff",
    "Batch",
    "BatchFailed",
    "BatchStats",
    "BlockedKey",
    "BucketLostError",
    "BucketWork",
    "BufferFullError",
    "Checkpoint",
    "CheckpointConsumer",
    "Client",
    "ClientError",
    "ClosedError",
    "ConsumerBusyError",
    "ConsumerFencedError",
    "ConsumerOptions",
    "ConsumerSettings",
    "Credentials",
    "CredentialsError",
    "DeadLetter",
    "DeadLetterPolicy",
    "DeadLetterReason",
    "DeadlineError",
    "DecryptionError",
    "DeliveryError",
    "DeliveryResult",
    "DeserializationError",
    "DuplicatesUnknownError",
    "EncryptionError",
    "ForbiddenError",
    "ForkedError",
    "Handler",
    "HandlerError",
    "KafkaReadError",
    "LayoutWatch",
    "ListChange",
    "Message",
    "MessageTooLargeError",
    "NodesUnreachableError",
    "OnDelivery",
    "PositionGoneError",
    "PositionOf",
    "Producer",
    "ProducerBusyError",
    "ProducerFencedError",
    "ProducerOptions",
    "ProducerSettings",
    "QueueBatch",
    "QueueConsumer",
    "QueueMessage",
    "QueueOptions",
    "QueueRunOptions",
    "QueueRunSettings",
    "QueueSettings",
    "ReadSettings",
    "RefusedByNodeError",
    "Reject",
    "Retry",
    "RunOptions",
    "RunSettings",
    "Segment",
    "SegmentMissingError",
    "SerializationError",
    "SessionLapsedError",
    "StreamConsumer",
    "StreamTopicsConsumer",
    "SubscriptionError",
    "Tls",
    "TlsError",
    "Token",
    "TopicLayout",
    "TopicListWatch",
    "TopicNotFoundError",
    "TopicSelection",
    "UnknownOutcomeError",
    "Work",
    "WorkStats",
    "WrongLoopError",
]
