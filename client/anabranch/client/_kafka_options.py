"""The properties that the SDK gives its Kafka clients, and the making of these."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaError, KafkaException

from anabranch.access.errors import CredentialsError
from anabranch.access.kafka_tokens import OAUTH_CB, TokenCache
from anabranch.core.log_rate_limit import LibrdkafkaLogFilter

_T = TypeVar("_T")

LOCKED_OUT: Final = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
    }
)
WITHOUT_TOKEN: Final = KafkaError._STATE  # for now
_UNACQUIRED: Final = "Failed to acquire SASL OAUTHBEARER token"
_FIRST_S: Final = 30.0
_MISSED_S: Final = 600.0  # librdkafka does not tell of a second failure, nor of success
_READ_S: Final = 15.0  # librdkafka reads a provider's next token after 10 s
_PATIENCE_S: Final = 10.0
_AGAIN_S: Final = 5.0  # librdkafka tells the same again by then, if it goes on

LIBRDKAFKA_LOG: Final = logging.getLogger("anabranch.client.librdkafka")  # else it is stderr
LIBRDKAFKA_LOG.addHandler(logging.NullHandler())
LIBRDKAFKA_LOG.addFilter(
    LibrdkafkaLogFilter()
)  # else thousands of lines a minute while Kafka is away

# The default is 300 s, and a consumer once read nothing for so long after Kafka's brokers came
# back: only the next look tells the leader. 20 s is well below the time a bucket may be unserved.
_LEADERS: Final[Mapping[str, Any]] = {"topic.metadata.refresh.interval.ms": 20_000}
_ASKING: Final[Mapping[str, Any]] = {
    "socket.nagle.disable": True,
    "socket.timeout.ms": 10_000,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 500,
    "retry.backoff.ms": 20,
    "log_level": 3,  # errors; a lost connection comes back by itself
}
CONSUMER: Final[Mapping[str, Any]] = {
    **_LEADERS,
    **_ASKING,
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",  # told to us, who know whether anybody misses what is gone
    "fetch.queue.backoff.ms": 1,
    "fetch.error.backoff.ms": 50,
}
SHARE_CONSUMER: Final[Mapping[str, Any]] = {
    **_LEADERS,
    "share.acknowledgement.mode": "explicit",
    "fetch.wait.max.ms": 10,
    "socket.nagle.disable": True,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 500,
    "retry.backoff.ms": 20,
    "log_level": 3,  # errors; one warns that this is a preview
}
# For clients that only ask and change. Unless they keep a connection to every broker of Kafka, a
# question to one that is away keeps two threads busy with waking each other (0021).
ADMIN: Final[Mapping[str, Any]] = {**_ASKING, "enable.sparse.connections": False}


def made(kind: Callable[..., _T], properties: Mapping[str, Any]) -> _T:
    """Returns a new client of Kafka. Blocks: it waits for a token, and confluent-kafka then sleeps
    for a second.

    Raises KafkaException with an error that passes if there is no token.
    """
    tokens = properties.get(OAUTH_CB)
    if isinstance(tokens, TokenCache):
        try:
            tokens.wait()
        except CredentialsError as error:
            raise KafkaException(KafkaError(WITHOUT_TOKEN, str(error))) from None
    mechanism = properties.get("sasl.mechanism", properties.get("sasl.mechanisms", ""))
    heard = properties.get("error_cb")
    if heard is None or str(mechanism).upper() != "OAUTHBEARER":
        return kind(properties, logger=LIBRDKAFKA_LOG)
    told = _Patient(heard, tokens)
    return kind({**properties, "error_cb": told}, logger=LIBRDKAFKA_LOG)


class _Patient:
    """Passes on the errors of a client that shows tokens.

    Being locked out passes at first. The token may have ended while a connection was made, and
    whoever gives tokens may be away for a while. librdkafka tries again meanwhile, several times a
    second with a token, and every 10 s for one.
    """

    def __init__(
        self,
        heard: Callable[[KafkaError], None],
        tokens: object,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._heard = heard
        self._tokens = tokens if isinstance(tokens, TokenCache) else None
        self._clock = clock
        self._begun_at = clock()
        self._first = self._last = self._missed_at = -math.inf
        self._missed = ""  # librdkafka's last words of having no token

    def __call__(self, error: KafkaError) -> None:
        if error.code() in LOCKED_OUT and (why := self._passing(error.str())):
            error = KafkaError(WITHOUT_TOKEN, why)
        self._heard(error)

    def _passing(self, said: str) -> str:
        """Returns the words for an error that may pass, else ""."""
        now = self._clock()
        if said.startswith(_UNACQUIRED):
            self._missed = said if self._tokens is None else self._tokens.explained(said)
            self._missed_at = now
            # Without a provider, a first one is a wrong setting.
            is_wrong = self._tokens is None and now < self._begun_at + _FIRST_S
            return "" if is_wrong else self._missed
        if self._tokens is not None and not self._tokens.has_token:
            self._missed, self._missed_at = self._tokens.why, now
        if now < self._missed_at + (_MISSED_S if self._tokens is None else _READ_S):
            return f"{said}; {self._missed}"
        if now > self._last + _AGAIN_S:
            self._first = now
        self._last = now
        return said if now < self._first + _PATIENCE_S else ""
