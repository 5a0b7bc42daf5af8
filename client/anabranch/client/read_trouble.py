"""`ReadTrouble`: what goes wrong in a thread that reads Kafka, and whether reading can go on."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Final

from confluent_kafka import KafkaError

from anabranch.client.consumer_errors import KafkaReadError
from anabranch.wire.log import get_logger

LIBRDKAFKA_LOG: Final = logging.getLogger("anabranch.client.librdkafka")  # else it is stderr
LIBRDKAFKA_LOG.addHandler(logging.NullHandler())
_log = get_logger(__name__)
_FOR_GOOD: Final = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError._AUTHENTICATION,
        KafkaError.SASL_AUTHENTICATION_FAILED,
    }
)


class ReadTrouble:
    """Made on the event loop and told by the reading thread; `on_failure` is called on the loop."""

    def __init__(self, on_failure: Callable[[], None]) -> None:
        self.failure: KafkaReadError | None = None  # why nothing can be read any more
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()

    def note(self, error: KafkaError | None) -> None:
        """Kafka said so; most errors pass."""
        if error is None:
            return
        if error.code() in _FOR_GOOD and self.failure is None:
            self._fail(f"Kafka refuses to be read: {error.str()}")
        _log.warning("consumer.kafka", why=error.str(), code=error.name())

    def fault(self, error: Exception) -> None:
        """The thread ends by this."""
        self._fail(f"reading from Kafka ended by a fault: {error!r}")

    def _fail(self, why: str) -> None:
        self.failure = KafkaReadError(why)
        with contextlib.suppress(RuntimeError):  # the loop was closed
            self._loop.call_soon_threadsafe(self._on_failure)
