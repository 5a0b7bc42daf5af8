"""How an adopted Kafka topic is opened again: what Kafka is asked, and what only for its word."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigResource, ConfigSource

from anabranch.channel.errors import KafkaRefusedError
from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.kafka.deadline import Deadline
from anabranch.channel.segments.opening import must_open, open_again
from anabranch.channel.segments.seal_settings import COMPRESSION, LIMIT, SEALED, STAMP
from support.waiting import WAIT_S

_OWN = {LIMIT: "2000"}


class _Entry:
    source = ConfigSource.DYNAMIC_TOPIC_CONFIG.value

    def __init__(self, value: str) -> None:
        self.value = value


class _Kafka:
    """A Kafka of one broker with a sealed topic. `errors`: its answers to the next changes."""

    bootstrap_servers = "memory"

    def __init__(self, *errors: int) -> None:
        self.errors = list(errors)
        self.settings: dict[str, str] = dict(SEALED)
        self.asked: list[bool] = []  # for each change: only for its word

    def describe_configs(
        self, resources: Sequence[ConfigResource], request_timeout: float = 0.0
    ) -> dict[ConfigResource, Future[Any]]:
        found = {name: _Entry(value) for name, value in self.settings.items()}
        return {each: _done(found) for each in resources}

    def incremental_alter_configs(
        self, resources: Sequence[ConfigResource], *, validate_only: bool
    ) -> dict[ConfigResource, Future[Any]]:
        self.asked.append(validate_only)
        if self.errors:
            return {each: _done(KafkaError(self.errors.pop(0))) for each in resources}
        for entry in () if validate_only else resources[0].incremental_configs:
            if entry.incremental_operation == AlterConfigOpType.SET:
                self.settings[entry.name] = str(entry.value)
            else:
                self.settings.pop(entry.name, None)
        return {each: _done(None) for each in resources}


def _done(answer: object) -> Future[Any]:
    future: Future[Any] = Future()
    if isinstance(answer, KafkaError):
        future.set_exception(KafkaException(answer))
    else:
        future.set_result(answer)
    return future


def _asks(kafka: _Kafka) -> None:
    must_open(cast(AdminClient, kafka), "old", _OWN, _deadline(kafka))


def _deadline(kafka: _Kafka) -> Deadline:
    return Deadline(cast(KafkaConnection, kafka), WAIT_S, lambda: None)


def test_kafka_is_asked_whether_it_would_open_a_topic_and_changes_nothing() -> None:
    """Also where it hesitates, and is asked once more."""
    kafka = _Kafka(KafkaError.REQUEST_TIMED_OUT, KafkaError.REQUEST_TIMED_OUT)
    _asks(kafka)
    assert kafka.asked == [True] * 4
    assert kafka.settings == SEALED


@pytest.mark.parametrize(
    "code", [KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.POLICY_VIOLATION], ids=str
)
def test_a_right_or_a_policy_that_forbids_the_opening_is_told_before_it(code: int) -> None:
    with pytest.raises(KafkaRefusedError, match="to open topic old again"):
        _asks(_Kafka(code))


def test_a_topic_that_is_opened_has_its_own_settings_and_no_other_of_a_seal() -> None:
    kafka = _Kafka(KafkaError.REQUEST_TIMED_OUT)
    open_again(cast(AdminClient, kafka), "old", _OWN, lambda: [1], _deadline(kafka))
    assert kafka.settings == _OWN
    assert kafka.asked == [False] * 3


def test_what_others_have_set_of_it_stays_where_the_topic_itself_had_it() -> None:
    kafka, own = _Kafka(), {COMPRESSION: "zstd", STAMP: "86400000"}
    open_again(cast(AdminClient, kafka), "old", own, lambda: [1], _deadline(kafka))
    assert kafka.settings == own
