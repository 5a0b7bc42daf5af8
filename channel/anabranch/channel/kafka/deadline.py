"""Waits for Kafka's answers until one deadline, and tells final errors from passing ones."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from anabranch.channel.errors import (
    KafkaAccessError,
    KafkaPolicyError,
    KafkaRefusedError,
    ReplicasMissingError,
)
from anabranch.channel.kafka.connection import KafkaConnection

_T = TypeVar("_T")
_K = TypeVar("_K", bound=Hashable)

_POLL_S_MIN: Final = 0.002  # oftener keeps Kafka from what is waited for
_POLL_S_MAX: Final = 0.1
_REFRESH_S: Final = 0.25
_NAMES_S_MAX: Final = 0.5
_POLL_SHARE: Final = 0.1  # so that what is noticed late is late by a twentieth on average

_ACCESS: Final = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError._AUTHENTICATION,
    }
)
_POLICY: Final = frozenset(
    {
        KafkaError.POLICY_VIOLATION,
        KafkaError.INVALID_CONFIG,
        KafkaError.INVALID_PARTITIONS,
        KafkaError.TOPIC_EXCEPTION,  # the name is not valid
        KafkaError.TOPIC_DELETION_DISABLED,
    }
)
_OTHERS: Final = frozenset(
    {
        KafkaError.INVALID_REQUEST,
        KafkaError.UNSUPPORTED_VERSION,
        KafkaError._UNSUPPORTED_FEATURE,
        KafkaError._INVALID_ARG,
    }
)


class Deadline:
    """One deadline for many questions. `doing` says the unfinished step when it passes.

    `refresh` asks Kafka anew for its leaders, and is called now and then during a wait for an
    answer (`asking_anew`). librdkafka waits for a Kafka broker that it once took for the
    controller, even if the broker is gone, until its own next look for topics, 20 s.
    """

    def __init__(
        self, connection: KafkaConnection, seconds: float, refresh: Callable[[], object]
    ) -> None:
        self._connection = connection
        self._refresh = refresh
        self._began = time.monotonic()
        self._deadline = self._began + seconds
        self._last: KafkaError | None = None

    def left_s(self, doing: str) -> float:
        """Seconds left. Raises KafkaUnreachableError when there are none."""
        left = self._deadline - time.monotonic()
        if left <= 0:
            why = f"{doing}; Kafka said last: {self._last.str()}" if self._last else doing
            raise self._connection.unreachable(why)
        return left

    def answer(self, future: Future[_T], doing: str) -> _T | KafkaError:
        """The result, or an error that may go away. Raises KafkaRefusedError for one that won't."""
        while True:
            wait_s = min(self.left_s(doing), _REFRESH_S)
            try:
                return future.result(wait_s)
            except FutureTimeoutError:
                self._refresh()
            except KafkaException as error:
                return self.passing(error.args[0], doing)

    def answer_all(
        self,
        names: Collection[_K],
        ask: Callable[[list[_K]], Mapping[_K, Future[Any]]],
        doing: str,
        fine: Collection[int] = (),
    ) -> dict[_K, Any]:
        """The answers by name. Asks again for those that failed otherwise than with a `fine`
        error.
        """
        answers: dict[_K, Any] = {}
        while left := [name for name in names if name not in answers]:
            for name, future in ask(left).items():
                answer = self.answer(future, f"{doing} {name}")
                if not isinstance(answer, KafkaError) or answer.code() in fine:
                    answers[name] = answer
            if len(answers) < len(names):
                self.pause(f"{doing} {left[0]}")
        return answers

    def passing(self, error: KafkaError, doing: str) -> KafkaError:
        """The error itself if it may go away. Raises KafkaRefusedError if it won't."""
        must_pass(error, doing, self._connection.bootstrap_servers)
        self._last = error
        return error

    def pause(self, doing: str) -> None:
        """Waits before another try, a tenth of the wait so far."""
        waited_s = time.monotonic() - self._began
        pause_s = min(max(_POLL_SHARE * waited_s, _POLL_S_MIN), _POLL_S_MAX)
        time.sleep(min(pause_s, self.left_s(doing)))


def asking_anew(admin: AdminClient, topics: Iterable[str]) -> Callable[[], None]:
    """Returns what has a client hear of the controller, of these topics' leaders, and of refusals.

    Kafka names as its controller any broker that it does not miss yet, so a dead one for some
    seconds. Any topic's name will do to hear of it. Without one librdkafka asks for all topics.
    """
    names = list(topics)

    def ask() -> None:
        admin.poll(0)  # a client that is not let in only says so when it is polled
        for name in names:
            with suppress(KafkaException):
                admin.list_topics(name, timeout=_NAMES_S_MAX)

    return ask


def must_pass(error: KafkaError, doing: str, servers: str) -> None:
    """Raises the KafkaRefusedError for what trying again does not mend."""
    code, said = error.code(), error.str()
    if code in _ACCESS:
        raise KafkaAccessError(servers, doing, said)
    if code == KafkaError.INVALID_REPLICATION_FACTOR:
        raise ReplicasMissingError(servers, doing, said)
    if code in _POLICY:
        raise KafkaPolicyError(servers, doing, said)
    if code in _OTHERS:
        raise KafkaRefusedError(f"Kafka at {servers} refused {doing}: {said}")
    if code == KafkaError.SECURITY_DISABLED:
        raise KafkaRefusedError(
            f"Kafka at {servers} refused {doing}: {said.rstrip('.')}. It asks nobody for rights: "
            "set authorizer.class.name on its brokers and controllers, or kafkaAclsEnabled=false "
            "here"
        )
