"""Errors of the SDK. Each message names the thing and the remedy."""

from __future__ import annotations

from typing import Final

from anabranch.access.home import HomeErrors
from anabranch.core.errors import AnabranchError, InvalidInputError


class ClientError(AnabranchError):
    """The base class of all errors of the SDK."""


class NodesUnreachableError(ClientError):
    """No node of the client's URL answered. The message has the failure of each address."""


class TlsError(NodesUnreachableError):
    """No node of the client's URL has a certificate that fits its address, or accepts the client's
    own.
    """


class CredentialsError(NodesUnreachableError):
    """The credentials cannot be read from their file, or their function failed. Kafka's token
    (`kafka_token`) is one of them.
    """


class AuthenticationError(ClientError):
    """A node does not accept the client's credentials. The message has the reason and a remedy.

    `may_pass` is True if the client may get another token later, from a file or a function.
    """

    def __init__(self, message: str, *, may_pass: bool = False) -> None:
        super().__init__(message)
        self.may_pass = may_pass


class RefusedByNodeError(ClientError):
    """A node understood the request, and refused it for a reason that has no error class of its
    own.
    """


class ForbiddenError(RefusedByNodeError):
    """The client's role has no right to this. The message names the right that it needs."""


class TopicNotFoundError(ClientError):
    """The scalable topic does not exist, or was deleted."""


class ClosedError(ClientError):
    """The client, the producer or the consumer was closed."""


class ForkedError(ClientError):
    """The object belongs to another process, from which this one was forked.
    Make a new one here.
    """


class WrongLoopError(ClientError):
    """The object belongs to another event loop. Make one in each `asyncio.run`."""


class DeadlineError(ClientError, TimeoutError):
    """An awaited event did not happen in time. The message has what is known about it."""


class BufferFullError(ClientError, BufferError):
    """`send_nowait` met a full buffer. Wait for `room()`, or use `send`, which waits."""


class MessageTooLargeError(ClientError, InvalidInputError):
    """The topic's Kafka would refuse the message, so it was not sent."""


class SerializationError(ClientError, ValueError):
    """The serializer of a key or value failed. Nothing was sent, and the cause is attached."""


class EncryptionError(SerializationError):
    """A producer's `encrypt` failed, or did not return bytes.
    Nothing was sent, and the cause is attached.
    """


class DeliveryError(ClientError):
    """The message was not delivered, and will not be."""


class SegmentMissingError(DeliveryError):
    """The Kafka topic of the message's segment is gone, because somebody has deleted it."""


class UnknownOutcomeError(DeliveryError):
    """It is unknown for good if Kafka has the message. The producer does not send it again."""


class ProducerBusyError(ClientError):
    """Another process is the producer of this name. Give each process a name of its own."""


class ProducerFencedError(DeliveryError):
    """Another process has taken over this producer's name, so this one sends nothing more."""


class DuplicatesUnknownError(ClientError):
    """It is not known which messages the producer's name has stored. Begin under a new name."""


class ConsumerBusyError(ClientError):
    """The subscription has its maximal number of consumers."""


class ConsumerFencedError(ClientError):
    """Another process has taken over this consumer's name. Give each process a name of its own."""


class SubscriptionError(ClientError):
    """The subscription is of another kind, or was deleted."""


class DeserializationError(ClientError, ValueError):
    """The deserializer of a key or value failed. The message can be acknowledged all the same."""


class DecryptionError(DeserializationError):
    """A consumer's `decrypt` failed, or did not return bytes. The message can be acknowledged."""


class HandlerError(ClientError):
    """The handler of `run` failed for the last time, and its consumer was to stop then. The cause
    is attached.
    """


class BucketLostError(ClientError):
    """The consumer lost the bucket of an acknowledged message before. The message of the error
    names the bucket and the reason.
    """


class SessionLapsedError(ClientError):
    """No controller answered for a session.
    Messages that were not committed are delivered again.
    """


class KafkaReadError(ClientError):
    """Kafka refuses this consumer, or this producer's name, for good. The message has Kafka's
    reason.
    """


class PositionGoneError(ClientError):
    """A checkpoint's position is outside of Kafka's range of the bucket. The message has both."""


HOME_ERRORS: Final = HomeErrors(ForkedError, WrongLoopError)
