"""Kafka's present brokers, and their racks.

Tried and dropped: the administrator's `describe_cluster`. If Kafka names no broker, an assertion of
librdkafka 2.16 ends the process. A Kafka of a single broker that was too slow for its controller
names none.
"""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Final

import structlog
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigEntry, ConfigResource

_RACK: Final = "broker.rack"

_log = structlog.get_logger()


def living(admin: AdminClient, name: str, timeout_s: float) -> dict[int, tuple[str, int]]:
    """Hosts and ports of the brokers that live, by id; empty if Kafka names none.

    `name`: any name that a topic of ours might have. Without one librdkafka asks for all topics
    that there are. Another name fills Kafka's log with refusals, because we have no right to it.
    Raises KafkaException.
    """
    brokers = admin.list_topics(name, timeout=timeout_s).brokers
    return {number: (str(each.host), each.port) for number, each in brokers.items()}


class Racks:
    """Asks each broker for its rack. To be used by one thread."""

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin
        self._known: dict[int, str] = {}  # the last one asked goes last
        self._warned = False

    def ask(self, brokers: Collection[int], timeout_s: float) -> dict[int, str]:
        """The rack of each broker, "" for one that names none. A broker that has never said it is
        left out.

        Asks those that are new, and one of the others in turn. The reason is that a broker tells
        all of its settings, and is in another rack only after an absence. Needs DescribeConfigs on
        the cluster; without it, no broker is known to be in a rack.
        """
        self._known = {each: rack for each, rack in self._known.items() if each in brokers}
        asked = [*(set(brokers) - self._known.keys()), *list(self._known)[:1]]
        # Each request goes to the broker that it is about, and waits for no other one.
        resources = {each: ConfigResource(ConfigResource.Type.BROKER, str(each)) for each in asked}
        answers: dict[int, Future[dict[str, ConfigEntry]]] = {
            each: self._admin.describe_configs([resource], request_timeout=timeout_s)[resource]
            for each, resource in resources.items()
        }
        for broker, answer in answers.items():
            self._note(broker, answer, timeout_s)
        return dict(self._known)

    def _note(self, broker: int, answer: Future[dict[str, ConfigEntry]], timeout_s: float) -> None:
        try:
            rack = answer.result(timeout_s)[_RACK].value
        except FutureTimeoutError:
            return
        except KafkaException as error:
            if error.args[0].code() != KafkaError.CLUSTER_AUTHORIZATION_FAILED:
                return
            rack = None
            if not self._warned:
                self._warned = True
                _log.warning(
                    "kafka.racks_not_told",
                    reason=error.args[0].str(),
                    remedy="give the node's principal DescribeConfigs on the cluster",
                )
        self._known.pop(broker, None)
        self._known[broker] = rack or ""
