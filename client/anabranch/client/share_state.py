"""Tells if Kafka can keep the state of share groups, which queues are, and why not in Kafka's
words.

Kafka keeps that state in a topic of its own. If it cannot create this topic, it lets members in,
gives them nothing, and tells nobody the reason.
"""

from __future__ import annotations

import time
from typing import Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

STATE_TOPIC: Final = "__share_group_state"
_COPIES: Final = "share.coordinator.state.topic.replication.factor"
_IN_SYNC: Final = "share.coordinator.state.topic.min.isr"
NOT_BEGUN: Final = (
    f"Kafka does not keep the state of share groups, which queues are: it has not made its topic "
    f"{STATE_TOPIC}. Turn them on by kafka-features.sh upgrade --feature share.version=1, if "
    "`describe` says that it is 0, or look for that topic in the logs of its brokers"
)
_NOT_TOLD: Final = 3  # copies: Kafka's default
_UNFIT: Final = (KafkaError.INVALID_REPLICATION_FACTOR, KafkaError.POLICY_VIOLATION)
_LOOK_S: Final = 0.2
SURE_S: Final = 8.0  # a busy Kafka makes it in one or two
_ASK_S: Final = 1.0  # for one answer


def await_state(admin: AdminClient, patience_s: float) -> str:
    """Waits until Kafka has the topic, which it creates for the first member of a group.

    Returns "" then, else the reason why Kafka has none. It returns a reason that Kafka can tell
    after eight seconds, and NOT_BEGUN after `patience_s` seconds. It returns "" also if Kafka does
    not answer. Blocks for some seconds longer at most.
    """
    began, why = time.monotonic(), ""
    try:
        while _is_missing(admin):
            waited_s = time.monotonic() - began
            if waited_s >= SURE_S:
                why = why or why_unfit(admin)
                if why != NOT_BEGUN or waited_s >= patience_s:
                    return why
            time.sleep(_LOOK_S)
    except KafkaException:
        pass  # the consumer's reads report it
    return ""


def why_unfit(admin: AdminClient) -> str:
    """Returns the reason why Kafka has no such topic, "" if it has one.

    Blocks for some seconds at most. Raises KafkaException if no broker answers.
    """
    if not _is_missing(admin):
        return ""
    numbers = sorted(admin.list_topics(STATE_TOPIC, _ASK_S).brokers)
    copies = _copies(admin, str(numbers[0]))
    said = _refusal(admin, copies, len(numbers))
    if not said:
        return NOT_BEGUN
    return (
        "Kafka cannot keep the state of share groups, which queues are: it cannot make its topic "
        f"{STATE_TOPIC} with {_COPIES}={copies}: {said.rstrip('.')}. Set {_COPIES} and {_IN_SYNC} "
        "to what its brokers can hold and restart them, or start more brokers"
    )


def _is_missing(admin: AdminClient) -> bool:
    error = admin.list_topics(STATE_TOPIC, _ASK_S).topics[STATE_TOPIC].error
    return error is not None and error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def _copies(admin: AdminClient, broker: str) -> int:
    """Returns the replication factor in that broker's settings, Kafka's default if it does not
    answer.
    """
    asked = ConfigResource(ConfigResource.Type.BROKER, broker)
    try:
        found = admin.describe_configs([asked], request_timeout=_ASK_S)[asked].result(_ASK_S)
        return int(found[_COPIES].value)
    except (KafkaException, KeyError, TypeError, ValueError, TimeoutError):
        return _NOT_TOLD


def _refusal(admin: AdminClient, copies: int, brokers: int) -> str:
    """Returns Kafka's reason against such a topic without creating it, else one from the number of
    brokers, else "".
    """
    asked = NewTopic(STATE_TOPIC, num_partitions=1, replication_factor=copies)
    try:
        made = admin.create_topics([asked], validate_only=True, request_timeout=_ASK_S)
        made[STATE_TOPIC].result(_ASK_S)
    except KafkaException as error:
        if error.args[0].code() in _UNFIT:
            return str(error.args[0].str())
    except TimeoutError:
        pass
    return f"only {brokers} of its brokers can be seen" if copies > brokers else ""
