"""The settings of producers and consumers. They check themselves when they are made.

A caller passes one settings object, or fields by name. Type checkers need the fields a second time
(`...Options`), because they cannot derive them from a class. A test holds both equal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, ClassVar, Final, Literal, Self, TypedDict

import msgspec

from anabranch.core import names
from anabranch.core.entities.subscription import DELIVERIES_MAX
from anabranch.core.errors import InvalidInputError

Start = Literal["earliest", "latest"] | datetime | int
Deserializer = Callable[[Any, Any], Any]  # takes bytes, and the context of confluent-kafka

EARLIEST: Final = -2  # in the place of a time, as in Kafka's protocol and ours
LATEST: Final = -1
_TIME_MAX: Final = 2**62
# Without gzip, by which a sealed segment tells what comes too late (docs/decisions/0012).
_COMPRESSIONS: Final = ("none", "snappy", "lz4", "zstd")
_LINGER_MS_MAX: Final = 60_000
_COUNT_MAX: Final = 2**31 - 1
_BYTES_MAX: Final = 2**63 - 1
_QUEUED_KBYTES_MAX: Final = 2_097_151


def _number(name: str, given: Any) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float) or math.isnan(given):
        raise InvalidInputError(f"{name} must be a number: {given!r}")
    return given


def _check_positive(name: str, given: Any) -> None:
    if not _number(name, given) > 0:
        raise InvalidInputError(f"{name} must be greater than 0: {given}")


def _check_not_negative(name: str, given: Any) -> None:
    if _number(name, given) < 0:
        raise InvalidInputError(f"{name} must not be negative: {given}")


def _check_whole(name: str, given: Any, least: int, most: int) -> None:
    if not isinstance(given, int) or isinstance(given, bool) or not least <= given <= most:
        raise InvalidInputError(f"{name} must be a whole number from {least} to {most}: {given!r}")


def start_milliseconds(name: str, given: Any) -> int:
    """Returns a `Start` in the protocol's form: milliseconds since 1970, EARLIEST or LATEST.
    Raises InvalidInputError.
    """
    if given in ("earliest", "latest"):
        return EARLIEST if given == "earliest" else LATEST
    if isinstance(given, datetime) and given.tzinfo is not None:
        given = round(given.timestamp() * 1000)
    if not isinstance(given, int) or isinstance(given, bool) or not 0 <= given <= _TIME_MAX:
        raise InvalidInputError(
            f'{name} must be "earliest", "latest", a datetime with a time zone, or milliseconds '
            f"since 1970: {given!r}"
        )
    return given


def _check_callable(name: str, given: Any, takes: str) -> None:
    # Not the thing itself: a key may have been given.
    if given is not None and not callable(given):
        raise InvalidInputError(f"{name} must be callable with {takes}: {type(given).__name__}")


class SettingsBase(msgspec.Struct, frozen=True, kw_only=True):
    """The base class of the settings of producers and consumers. Raises InvalidInputError."""

    @classmethod
    def of(cls, base: Self | None, changes: Mapping[str, object]) -> Self:
        """Returns `base`, or the defaults, with changes. Raises InvalidInputError."""
        if base is not None and not isinstance(base, cls):
            raise InvalidInputError(f"settings must be {cls.__name__}: {type(base).__name__}")
        unknown = sorted(set(changes) - set(cls.__struct_fields__))
        if unknown:
            raise InvalidInputError(
                f"{cls.__name__} has no setting {', '.join(unknown)}: it has "
                f"{', '.join(cls.__struct_fields__)}"
            )
        return msgspec.structs.replace(base or cls(), **changes)


class ProducerSettings(SettingsBase, frozen=True, kw_only=True):
    """The settings of a producer. Raises InvalidInputError.

    `linger_ms` is the milliseconds that a batch waits for more messages. `buffer_messages_max` and
    `buffer_bytes_max` bound the messages that are under way or held, by number and by bytes of
    values. `delivery_timeout_s` is the time from the sending of a message until it is given up.
    Time in which Kafka throttles the client by a quota does not count, up to four times that.

    Serializers are those of confluent-kafka, or any callable of (object, SerializationContext).
    `encrypt` takes a serialized value and returns the bytes to store in its place. Each message is
    then a batch of its own. `stamp_bounds` stores the bounds of the key's hashes as headers of each
    message. Encrypted messages always have these headers.

    `name` and `deduplicate` go together: each message has a `sequence`, and one that a former
    process of the name has stored is not stored again. `new_name` says that nothing was ever sent
    under the name, where Kafka has forgotten too much to tell.
    """

    linger_ms: float = 5.0
    compression: str = "none"
    buffer_messages_max: int = 100_000
    buffer_bytes_max: int = 64 * 1024 * 1024
    delivery_timeout_s: float = 120.0
    key_serializer: Callable[[Any, Any], Any] | None = None
    value_serializer: Callable[[Any, Any], Any] | None = None
    encrypt: Callable[[bytes], bytes] | None = None
    stamp_bounds: bool = False
    name: str = ""
    deduplicate: bool = False
    new_name: bool = False

    def __post_init__(self) -> None:
        if self.compression not in _COMPRESSIONS:
            raise InvalidInputError(
                f"compression {self.compression!r} is not one of {', '.join(_COMPRESSIONS)}"
            )
        if not 0 <= _number("linger_ms", self.linger_ms) <= _LINGER_MS_MAX:
            raise InvalidInputError(f"linger_ms must be in [0, {_LINGER_MS_MAX}]: {self.linger_ms}")
        _check_whole("buffer_messages_max", self.buffer_messages_max, 1, _COUNT_MAX)
        _check_whole("buffer_bytes_max", self.buffer_bytes_max, 1, _BYTES_MAX)
        _check_positive("delivery_timeout_s", self.delivery_timeout_s)
        _check_callable("key_serializer", self.key_serializer, "(object, context)")
        _check_callable("value_serializer", self.value_serializer, "(object, context)")
        _check_callable("encrypt", self.encrypt, "the bytes of a value")
        if not isinstance(self.stamp_bounds, bool):
            raise InvalidInputError(f"stamp_bounds must be True or False: {self.stamp_bounds!r}")
        if bool(self.name) != self.deduplicate or (self.new_name and not self.name):
            raise InvalidInputError(
                "a producer's name serves to find its duplicates: give name= and deduplicate=True, "
                "or none of name, deduplicate and new_name"
            )
        if self.name:
            names.consumer(self.name)

    @property
    def stamps(self) -> bool:
        """True if messages have the bounds of their hashes as headers."""
        return self.stamp_bounds or self.encrypt is not None


class ProducerOptions(TypedDict, total=False):
    """`ProducerSettings` by name."""

    linger_ms: float
    compression: str
    buffer_messages_max: int
    buffer_bytes_max: int
    delivery_timeout_s: float
    key_serializer: Callable[[Any, Any], Any] | None
    value_serializer: Callable[[Any, Any], Any] | None
    encrypt: Callable[[bytes], bytes] | None
    stamp_bounds: bool
    name: str
    deduplicate: bool
    new_name: bool


class ReadSettings(msgspec.Struct, frozen=True):
    """The size of the read-ahead, and the patience of a fetch. Raises InvalidInputError.

    `bytes_max` is roughly the bytes of values that one consumer reads ahead. Four parts have a
    quarter each: librdkafka's queue, a fetch under way (from each Kafka broker), messages read and
    not taken yet, and the next batch. Batches that the application has taken do not count. A larger
    message is read all the same. `fetch_wait_ms` is in milliseconds.
    """

    batch_messages_max: ClassVar = 1_000
    buffered_messages_max: ClassVar = 40_000  # read from librdkafka and not taken yet
    bytes_max: int = 64 * 1024 * 1024
    fetch_wait_ms: int = 10

    def __post_init__(self) -> None:
        _check_whole("bytes_max", self.bytes_max, 1, _BYTES_MAX)

    @property
    def quarter_bytes(self) -> int:
        return max(1_024, self.bytes_max // 4)

    def kafka(self) -> dict[str, Any]:
        """The properties of librdkafka for these bounds."""
        fetch = min(50 * 1024 * 1024, self.quarter_bytes)
        return {
            "queued.min.messages": 1_000_000,  # it reads on below this, per partition
            "queued.max.messages.kbytes": min(_QUEUED_KBYTES_MAX, self.quarter_bytes // 1_024),
            "fetch.message.max.bytes": min(1024 * 1024, fetch),
            "message.max.bytes": min(1_000_000, fetch),  # else it is the least of the next
            "fetch.max.bytes": fetch,
            "fetch.wait.max.ms": self.fetch_wait_ms,
        }


class ReceivingSettings(SettingsBase, frozen=True, kw_only=True):
    """The settings that all kinds of consumers share.

    Deserializers are those of confluent-kafka, or any callable of (bytes, SerializationContext).
    `decrypt` undoes the producers' `encrypt`, before the value's deserializer runs.
    `subscribe_timeout_s` should exceed the time that a former process of the same name may still
    serve.

    `start` is the place where a new subscription begins. It is "earliest", "latest", or a time, and
    then the first messages of that time or later. A time is a `datetime` with a time zone, or
    milliseconds since 1970.
    """

    start: Start = "earliest"
    key_deserializer: Deserializer | None = None
    value_deserializer: Deserializer | None = None
    decrypt: Callable[[bytes], bytes] | None = None
    subscribe_timeout_s: float = 30.0

    def __post_init__(self) -> None:
        _check_callable("key_deserializer", self.key_deserializer, "(bytes, context)")
        _check_callable("value_deserializer", self.value_deserializer, "(bytes, context)")
        _check_callable("decrypt", self.decrypt, "the bytes of a value")
        _check_not_negative("subscribe_timeout_s", self.subscribe_timeout_s)
        start_milliseconds("start", self.start)

    @property
    def start_ms(self) -> int:
        """`start` in the protocol's form."""
        return start_milliseconds("start", self.start)


class ReceivingOptions(TypedDict, total=False):
    """`ReceivingSettings` by name."""

    start: Start
    key_deserializer: Deserializer | None
    value_deserializer: Deserializer | None
    decrypt: Callable[[bytes], bytes] | None
    subscribe_timeout_s: float


class DeadLetterPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The rule for messages that a subscription could not process. Raises InvalidInputError.

    `deliveries_max` is a queue's: the deliveries before a message goes to the dead-letter topic, 5
    if left. A stream has none, since `Retry` of its `run` counts attempts. `topic` is a scalable
    topic, and is created if it does not exist. The default is `{topic}-{subscription}-DLQ`, in the
    same namespace.
    """

    deliveries_max: int | None = None
    topic: str = ""

    def __post_init__(self) -> None:
        if self.deliveries_max is not None:
            _check_whole("deliveries_max", self.deliveries_max, 1, DELIVERIES_MAX)
        if not isinstance(self.topic, str):
            raise InvalidInputError(f"topic must be a str: {type(self.topic).__name__}")
        if self.topic:
            names.parse_scalable_topic(self.topic)


class ConsumerSettings(ReceivingSettings, frozen=True, kw_only=True):
    """The settings of a stream or checkpoint consumer. Raises InvalidInputError.

    A bucket that goes to another consumer waits `settle_timeout_s` seconds for messages that the
    application has not acknowledged. Then they are revoked, and delivered again there. Without a
    time-out the bucket waits until the session ends.

    `commit_interval_s` is the time between commits. `commit_again_s` is the interval of repeating a
    commit that is unchanged. Kafka forgets positions that nobody has committed for
    `offsets.retention.minutes` (7 days by default), even if they are in use. `dead_letter` becomes
    the policy of a stream's subscription, which keeps it.
    """

    commit_interval_s: float = 0.1
    commit_again_s: float = 6 * 3600.0
    settle_timeout_s: float | None = None
    read: ReadSettings = ReadSettings()
    dead_letter: DeadLetterPolicy | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_not_negative("commit_interval_s", self.commit_interval_s)
        _check_positive("commit_again_s", self.commit_again_s)
        _check_not_negative("settle_timeout_s", self.settle_s)
        if not isinstance(self.read, ReadSettings):
            raise InvalidInputError(f"read must be ReadSettings: {self.read!r}")
        _check_policy(self.dead_letter)

    @property
    def settle_s(self) -> float:
        """`settle_timeout_s`, infinite without one."""
        return math.inf if self.settle_timeout_s is None else self.settle_timeout_s


class ConsumerOptions(ReceivingOptions, total=False):
    """`ConsumerSettings` by name."""

    commit_interval_s: float
    commit_again_s: float
    settle_timeout_s: float | None
    read: ReadSettings
    dead_letter: DeadLetterPolicy | None


class QueueSettings(ReceivingSettings, frozen=True, kw_only=True):
    """The settings of a queue consumer. Raises InvalidInputError.

    `messages_max` is roughly the size of one delivery. All messages of one delivery must be settled
    before the next one comes.

    `lock_s` is the group's `share.record.lock.duration.ms` in seconds, for a Kafka that does not
    tell it. Messages that are not settled by then are delivered again. `dead_letter` becomes the
    policy of the subscription, which keeps it.
    """

    messages_max: int = 2_000
    lock_s: float | None = None
    dead_letter: DeadLetterPolicy | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_whole("messages_max", self.messages_max, 1, _COUNT_MAX)
        if self.lock_s is not None:
            _check_positive("lock_s", self.lock_s)
        _check_policy(self.dead_letter)


class QueueOptions(ReceivingOptions, total=False):
    """`QueueSettings` by name."""

    messages_max: int
    lock_s: float | None
    dead_letter: DeadLetterPolicy | None


def _check_policy(given: Any) -> None:
    if not isinstance(given, DeadLetterPolicy | None):
        raise InvalidInputError(f"dead_letter must be a DeadLetterPolicy: {given!r}")
