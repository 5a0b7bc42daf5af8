"""The making of Kafka clients: Kafka's address, the credentials for it, and the patience with it.

The defaults of librdkafka are made for throughput over unreliable networks. A node needs a short
way there and back, a quick return after an outage, and an answer within seconds.
"""

from __future__ import annotations

import errno
import logging
import math
import os
import resource
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient

from anabranch.access.errors import CredentialsError
from anabranch.access.kafka_tokens import OAUTH_CB, TokenCache
from anabranch.channel.errors import (
    BrokersForgottenError,
    KafkaRefusedError,
    KafkaUnreachableError,
    ProducerLostError,
)
from anabranch.core.errors import AnabranchError, InvalidInputError
from anabranch.core.log_rate_limit import LibrdkafkaLogFilter

_T = TypeVar("_T")

_SECURITY: Final = (
    *("security.", "sasl.", "ssl.", "enable.ssl.", "enable.sasl.", "https."),
    *("client.id", "client.dns.lookup"),
)
_COMMON: Final[Mapping[str, Any]] = {
    "socket.nagle.disable": True,
    "socket.keepalive.enable": True,
    "socket.timeout.ms": 10_000,  # a request on a dead connection is given up after this
    "socket.connection.setup.timeout.ms": 5_000,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 500,  # Kafka is back for us half a second after it is back
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 500,
    # The default is 300 s, for which a client may not notice that a partition has another leader.
    "topic.metadata.refresh.interval.ms": 20_000,
    "log_level": 4,  # warnings
    # The defaults of librdkafka's producer and of every Kafka make a missing topic: one that
    # Anabranch has deleted would come back, with other settings, and take appends.
    "allow.auto.create.topics": False,
    # Kafka may ask clients for metrics (KIP-714). librdkafka keeps a histogram of each figure for
    # each broker, asked or not, which are up to 0.4 MB of each client.
    "enable.metrics.push": False,
}
# Else a question to a broker of Kafka that is away keeps two threads busy with nothing but waking
# each other, for as long as it waits for an answer (docs/decisions/0021).
_ADMIN: Final[Mapping[str, Any]] = {"enable.sparse.connections": False}
# Nothing is ever grouped or committed; librdkafka asks for a group's name all the same.
_CONSUMER: Final[Mapping[str, Any]] = {
    "group.id": "anabranch-no-group",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    "fetch.wait.max.ms": 100,  # news is sent at once; this only delays questions behind a fetch
    "fetch.min.bytes": 1,
    "fetch.queue.backoff.ms": 1,  # default 1000: pauses of a second whenever the queue is full
    "fetch.error.backoff.ms": 50,
}
# Our consumers hear this without a right to that group: librdkafka asks for its coordinator all
# the same, and nothing depends on the answer.
NO_GROUP: Final = KafkaError.GROUP_AUTHORIZATION_FAILED
# Said of an outage or of a topic just made; they go away by themselves or time will tell.
_PASSING: Final = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError._RESOLVE,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        NO_GROUP,
    }
)
# librdkafka's longest own time for an administrator's request to a group's coordinator. If the
# time is over before the coordinator is found, finding it ends the process (librdkafka 2.16, its
# issue 4605). The caller stops waiting by itself, and ends the client.
COORDINATOR_S: Final = 3_600.0
_PRODUCER: Final[Mapping[str, Any]] = {
    "acks": "all",
    "enable.idempotence": True,
    "linger.ms": 0,
}
# A starting node or command waits for so long for an answer of Kafka. Kafka may be just starting
# too, or load a coordinator's data first. Its own tools wait for 60 s.
KAFKA_S_MAX: Final = 30.0
_STATISTICS_MS: Final = 10_000
_UNREACHABLE: Final = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._RESOLVE,
        KafkaError.REQUEST_TIMED_OUT,
    }
)
_REFUSED: Final = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError._SSL,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
    }
)
_REAL: Final = frozenset({"learned", "configured"})  # sources of brokers that have an address
_REFUSED_S: Final = 15.0  # it is tried again meanwhile, at most 5 s apart
_CLOSE_S_MAX: Final = 5.0


_log = logging.getLogger("anabranch.channel.librdkafka")  # the one thing librdkafka can log to
_log.addFilter(LibrdkafkaLogFilter())
_log.addHandler(logging.NullHandler())  # without a handler of its own Python would print to stderr


# The system's words when no more can be opened, by this process or at all.
_NO_DESCRIPTOR: Final = (os.strerror(errno.EMFILE), os.strerror(errno.ENFILE))


class _Broker(msgspec.Struct):
    source: str


class _Statistics(msgspec.Struct):
    name: str  # the client's name, such as 127.0.0.1:8080#consumer-3
    brokers: dict[str, _Broker]


class Refusals:
    """The reasons why Kafka did not let clients in, or was out of reach. Clients notice them while
    they are polled.

    A refusal is one more reason for librdkafka to connect again. So a caller that waits for an
    answer only sees that none comes.
    """

    def __init__(self) -> None:
        self._said = ""
        self._at = -math.inf
        self._starved_at = -math.inf
        self._without_brokers: set[str] = set()  # names of clients, at their last statistics
        self._forgotten: BrokersForgottenError | None = None

    def note(self, error: KafkaError) -> None:
        """Notes a client's error of any kind."""
        if error.code() in _REFUSED:
            self._said, self._at = error.str(), time.monotonic()
        elif any(why in error.str() for why in _NO_DESCRIPTOR):
            self._starved_at = time.monotonic()

    def note_brokers(self, statistics: str) -> None:
        """Notes the statistics of a client, which say whether it knows any broker of Kafka's.

        A Kafka that ends may say that Kafka has no broker. After that librdkafka 2.16 asks none any
        more, not even the bootstrap servers (confluentinc/librdkafka, issue 5301). Only two such
        statistics in a row count, because the client may just be on the way to another set of
        brokers.
        """
        client = msgspec.json.decode(statistics, type=_Statistics)
        if any(broker.source in _REAL for broker in client.brokers.values()):
            self._without_brokers.discard(client.name)
        elif client.name in self._without_brokers:
            self._forgotten = BrokersForgottenError(client.name)
        else:
            self._without_brokers.add(client.name)

    def check(self) -> None:
        """Raises BrokersForgottenError if a client will never reach Kafka again."""
        if self._forgotten is not None:
            raise self._forgotten.with_traceback(None)

    @property
    def starved(self) -> bool:
        """Tells whether no connection could be opened lately, for want of a file descriptor."""
        return time.monotonic() - self._starved_at < _REFUSED_S

    @property
    def last(self) -> str:
        """The newest one that is not long ago, or ""."""
        return self._said if time.monotonic() - self._at < _REFUSED_S else ""


class KafkaConnection(msgspec.Struct, frozen=True):
    """Bootstrap servers and librdkafka's security properties, with the cache of their tokens
    (`kafka_tokens.at`). Making a client blocks: it waits for a token, and confluent-kafka then
    sleeps for a second. Raises InvalidInputError.
    """

    bootstrap_servers: str
    security: Mapping[str, Any] = {}
    client_id: str = "anabranch"
    refusals: Refusals = msgspec.field(default_factory=Refusals)

    def __post_init__(self) -> None:
        if not self.bootstrap_servers.strip():
            raise InvalidInputError("no bootstrap servers are given: name at least one host:port")
        for name in self.security:
            if not name.startswith(_SECURITY) and name != OAUTH_CB:
                raise InvalidInputError(
                    f"Kafka property {name!r} is not a security property: only those that start "
                    f"with {', '.join(_SECURITY)} can be set; all others are tuned by Anabranch"
                )

    def __repr__(self) -> str:
        return f"KafkaConnection({self.bootstrap_servers!r})"  # security may hold passwords

    def producer(
        self,
        on_error: Callable[[KafkaError], None] | None = None,
        *,
        is_polled: bool = False,
        **settings: Any,
    ) -> Producer:
        """An idempotent producer; `settings` with underscores for dots.

        `on_error` is told of errors that are no record's own, on the thread that polls.
        `is_polled`: all the time, so that it can be told that Kafka is forgotten, too
        (`Refusals.note_brokers`); a client that is not keeps its statistics for ever.
        """

        def noted(error: KafkaError) -> None:
            self.refusals.note(error)
            if on_error is not None:
                on_error(error)

        told = {"error_cb": noted, **self._statistics(is_polled)}
        return self._made(Producer, {**_PRODUCER, **told, **_dotted(settings)})

    def consumer(self, *, is_polled: bool = False, **settings: Any) -> Consumer:
        """A consumer that is assigned its partitions and commits nothing; see `producer` for the
        rest.
        """
        told = self._statistics(is_polled)
        return self._made(Consumer, {**_CONSUMER, **told, **_dotted(settings)})

    def share_consumer(self, **settings: Any) -> ShareConsumer:
        """A member of a share group, which makes no topic anyway; see `producer` for the rest."""
        return self._made(ShareConsumer, _dotted(settings), refused="allow.auto.create.topics")

    def admin(self) -> AdminClient:
        """A client for questions and for changes of topics."""
        return self._made(AdminClient, _ADMIN)

    def _statistics(self, is_polled: bool) -> Mapping[str, Any]:
        if not is_polled:
            return {}
        return {"statistics.interval.ms": _STATISTICS_MS, "stats_cb": self.refusals.note_brokers}

    def _made(self, kind: Callable[..., _T], settings: Mapping[str, Any], refused: str = "") -> _T:
        everything = {
            **_COMMON,
            "bootstrap.servers": self.bootstrap_servers,
            "client.id": self.client_id,
            "error_cb": self.refusals.note,
            **settings,
            **self.security,
        }
        everything.pop(refused, None)
        tokens = self.security.get(OAUTH_CB)
        if isinstance(tokens, TokenCache):
            try:
                tokens.wait()
            except CredentialsError as error:
                raise KafkaUnreachableError(
                    f"Kafka at {self.bootstrap_servers} wants a token: {error}"
                ) from None
            everything["error_cb"] = _explained(everything["error_cb"], tokens)
        try:
            return kind(everything, logger=_log)
        except KafkaException as error:
            reason = error.args[0].str()
            raise InvalidInputError(f"a Kafka property is not valid: {reason}") from None

    def explained(self, error: KafkaException, doing: str) -> AnabranchError:
        """The error of ours that says what could not be done, and where."""
        code, reason = error.args[0].code(), error.args[0].str()
        if code in _UNREACHABLE:
            return self.unreachable(doing)
        return KafkaRefusedError(f"Kafka at {self.bootstrap_servers} refused {doing}: {reason}")

    def unreachable(self, doing: str) -> KafkaUnreachableError:
        """The error of no answer, which may be that Kafka does not let us in."""
        if self.refusals.starved:
            most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            return KafkaUnreachableError(
                f"this process has no file descriptor left to ask Kafka with ({doing}): it may "
                f"have {most}. Raise its limit (ulimit -n, LimitNOFILE), or lower "
                "maxHttpServerConnections and brokerMaxConnections"
            )
        refused = self.refusals.last
        if refused:
            return KafkaUnreachableError(
                f"Kafka at {self.bootstrap_servers} does not let this client in ({doing}): "
                f"{refused.rstrip('.')}. Correct the security properties in kafkaPropertiesFile "
                "(--kafka-properties): sasl.username, sasl.password and sasl.mechanism for who we "
                "are, ssl.ca.location for whom we trust"
            )
        return KafkaUnreachableError(
            f"Kafka at {self.bootstrap_servers} did not answer in time ({doing}): check that it "
            "runs, that its advertised listeners are reachable from here, and the security "
            "properties in kafkaPropertiesFile (--kafka-properties)"
        )


class ProducerHealth:
    """Notes the error after which an idempotent producer refuses everything for ever.

    librdkafka raises it if it can no longer tell which records were appended, such as after a log
    that was truncated behind its back. Only another producer helps.
    """

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._lost: ProducerLostError | None = None

    def note(self, error: KafkaError) -> None:
        """Notes a producer's error of any kind."""
        if self._lost is None and (error.fatal() or error.code() == KafkaError._FATAL):
            self._lost = ProducerLostError(self._topic, error.str())

    def check(self) -> None:
        """Raises ProducerLostError if the producer is lost."""
        if self._lost is not None:
            raise self._lost.with_traceback(None)


def is_passing(error: KafkaError) -> bool:
    """Tells whether a reader had better wait than give up."""
    return error.retriable() or error.code() in _PASSING


def close_consumer(consumer: Consumer, timeout_s: float = _CLOSE_S_MAX) -> None:
    """Closes a consumer, or gives up: librdkafka 2.16 may wait for ever when it is closed at the
    very moment at which it learns that its offset is out of range.
    """
    closing = threading.Thread(target=consumer.close, name="consumer-close", daemon=True)
    closing.start()
    closing.join(timeout_s)
    if closing.is_alive():
        _log.warning("HANG a consumer did not close within %s s; it is left behind", timeout_s)


def _explained(
    heard: Callable[[KafkaError], None], tokens: TokenCache
) -> Callable[[KafkaError], None]:
    """Returns a listener that is told why the provider of tokens fails."""

    def told(error: KafkaError) -> None:
        why = tokens.explained(error.str())
        heard(error if why == error.str() else KafkaError(error.code(), why))

    return told


def _dotted(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name.replace("_", "."): value for name, value in settings.items()}
