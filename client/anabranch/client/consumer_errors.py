"""What can go wrong for a consumer only; each message names the thing and the remedy."""

from __future__ import annotations

from anabranch.client.errors import ClientError


class ConsumerBusyError(ClientError):
    """Another process serves under this consumer name: choose another name, or close that one."""


class SubscriptionError(ClientError):
    """The subscription is of another kind, or was deleted."""


class DeserializationError(ClientError, ValueError):
    """A key's or value's deserializer refused it. The message can be acknowledged all the same."""


class DecryptionError(DeserializationError):
    """A consumer's `decrypt` failed, or gave no bytes. The message can be acknowledged."""


class SessionLapsedError(ClientError):
    """No controller answered for a session; what was not committed is delivered again."""


class KafkaReadError(ClientError):
    """Kafka refuses this consumer for good: the message says what it refuses."""


class PositionGoneError(ClientError):
    """A checkpoint's position is not in what Kafka has of the bucket; the message has the range."""
