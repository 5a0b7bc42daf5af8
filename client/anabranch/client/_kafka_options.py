"""The properties that the SDK gives its Kafka clients."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from anabranch.core.log_rate_limit import LibrdkafkaLogFilter

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
