"""Tells if Kafka keeps the state of share groups, which queues are.

Kafka keeps that state in a topic of its own. If it cannot create this topic, it lets members in,
gives them nothing, and tells nobody the reason.
"""

from __future__ import annotations

import contextlib
import time
from typing import Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

STATE_TOPIC: Final = "__share_group_state"
NOT_BEGUN: Final = (
    "Kafka does not keep the state of share groups, which queues are: it has not made its topic "
    f"{STATE_TOPIC}. Queues need Kafka 4.2 or newer. Turn share groups on by kafka-features.sh "
    "upgrade --feature share.version=1, if `describe` says that it is 0. Else set "
    "share.coordinator.state.topic.replication.factor and share.coordinator.state.topic.min.isr "
    "to what its brokers can hold, and restart them"
)
_LOOK_S: Final = 0.2
_SURE_S: Final = 8.0  # a busy Kafka makes it in one or two
_ASK_S: Final = 1.0  # for one answer


def await_state(admin: AdminClient, patience_s: float) -> str:
    """Waits until Kafka has the topic, which it creates for the first member of a group.

    Returns "" then, and NOT_BEGUN if it has none after `patience_s` seconds, or eight if that is
    more. It returns "" also if Kafka never answered. Blocks for a second longer at most.
    """
    end, missing = time.monotonic() + max(_SURE_S, patience_s), False
    while True:
        with contextlib.suppress(KafkaException):  # the consumer's reads report it
            missing = is_missing(admin)
            if not missing:
                return ""
        if time.monotonic() >= end:
            return NOT_BEGUN if missing else ""
        time.sleep(_LOOK_S)


def is_missing(admin: AdminClient) -> bool:
    """Returns True if Kafka does not have the topic.

    Blocks for a second at most. Raises KafkaException if no broker answers.
    """
    error = admin.list_topics(STATE_TOPIC, _ASK_S).topics[STATE_TOPIC].error
    return error is not None and error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
