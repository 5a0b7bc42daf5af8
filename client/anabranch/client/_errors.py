"""What can go wrong in the SDK; each message names the thing and the remedy."""

from __future__ import annotations

from typing import Final

from anabranch.access.home import HomeErrors
from anabranch.core.errors import AnabranchError, InvalidInputError


class ClientError(AnabranchError):
    """Root of the family."""


class NodesUnreachableError(ClientError):
    """No node of the client's URL answered; the message says of each address what happened."""


class TlsError(NodesUnreachableError):
    """None of the client's nodes is who it should be by its certificate, or takes the client's."""


class CredentialsError(NodesUnreachableError):
    """What is to be shown cannot be had: its file cannot be read, or its function failed."""


class AuthenticationError(ClientError):
    """A node does not take who the client says it is; the message has the reason and a remedy.

    `may_pass`: whether the client may yet show another token, from a file or a function.
    """

    def __init__(self, message: str, *, may_pass: bool = False) -> None:
        super().__init__(message)
        self.may_pass = may_pass


class RefusedByNodeError(ClientError):
    """A node understood the request and refused it for a reason that has no error of its own."""


class ForbiddenError(RefusedByNodeError):
    """Whoever the client is has no right to this; the message says which one it needs."""


class TopicNotFoundError(ClientError):
    """There is no such scalable topic, or it has been deleted."""


class ClosedError(ClientError):
    """The client, the producer or the consumer was closed."""


class ForkedError(ClientError):
    """It was made in another process, from which this one was forked: make one here."""


class WrongLoopError(ClientError):
    """It was made on another event loop: make one in each `asyncio.run`."""


class DeadlineError(ClientError, TimeoutError):
    """What was waited for did not happen in time; the message says what is known about it."""


class BufferFullError(ClientError, BufferError):
    """`send_nowait` met a full buffer: wait for `room()`, or use `send`, which waits."""


class MessageTooLargeError(ClientError, InvalidInputError):
    """A message that the topic's Kafka would refuse; it was not sent."""


class SerializationError(ClientError, ValueError):
    """A key's or value's serializer refused it; nothing was sent. The cause is attached."""


class EncryptionError(SerializationError):
    """A producer's `encrypt` failed, or gave no bytes; nothing was sent. The cause is attached."""


class DeliveryError(ClientError):
    """A message was not delivered, and will not be."""


class SegmentMissingError(DeliveryError):
    """Kafka does not have the topic of the message's segment: somebody has deleted it."""


class UnknownOutcomeError(DeliveryError):
    """Whether Kafka has the message cannot be told any more. It is not sent again."""


class ConsumerBusyError(ClientError):
    """The subscription has as many consumers as it may have."""


class ConsumerFencedError(ClientError):
    """Another process has taken this consumer's name over: each needs a name of its own."""


class SubscriptionError(ClientError):
    """The subscription is of another kind, or was deleted."""


class DeserializationError(ClientError, ValueError):
    """A key's or value's deserializer refused it. The message can be acknowledged all the same."""


class DecryptionError(DeserializationError):
    """A consumer's `decrypt` failed, or gave no bytes. The message can be acknowledged."""


class BucketLostError(ClientError):
    """What is acknowledged was taken from this consumer before; the message says why, and which."""


class SessionLapsedError(ClientError):
    """No controller answered for a session; what was not committed is delivered again."""


class KafkaReadError(ClientError):
    """Kafka refuses this consumer for good: the message says what it refuses."""


class PositionGoneError(ClientError):
    """A checkpoint's position is not in what Kafka has of the bucket; the message has the range."""


HOME_ERRORS: Final = HomeErrors(ForkedError, WrongLoopError)
