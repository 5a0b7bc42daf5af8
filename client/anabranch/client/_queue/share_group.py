"""Kafka's settings of a share group: the duration of a message's lock, and the number of
deliveries.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource

from anabranch.client import share_state
from anabranch.client._aio import on_thread
from anabranch.client._consumer.reads import is_for_good, locked_out
from anabranch.client._errors import DeadlineError, KafkaReadError
from anabranch.client._kafka_options import ADMIN, made

_LOCK: Final = "share.record.lock.duration.ms"
_COUNT: Final = "share.delivery.count.limit"
_COUNT_MAX: Final = 5  # Kafka's own, where it does not tell
_ASK_S: Final = 3.0
_RETRY_S: Final = 0.2


class Delivering(msgspec.Struct, frozen=True):
    """The seconds for which a consumer may hold a message, and the number of deliveries that Kafka
    allows.
    """

    lock_s: float
    count_max: int = _COUNT_MAX

    @property
    def hold_s(self) -> float:
        """The seconds for which a delivery may be kept: Kafka must have the answers before its lock
        ends.
        """
        return self.lock_s * 0.8


class ShareGroup:
    """The questions to Kafka of one consumer that joins the group of `kafka`. Making it blocks.
    Raises KafkaException if there is no token.
    """

    def __init__(self, kafka: Mapping[str, Any]) -> None:
        properties = dict(kafka)
        self._name = properties.pop("group.id")
        self._heard: list[KafkaError] = []
        told: dict[str, Any] = {
            **ADMIN,
            "allow.auto.create.topics": False,
            "error_cb": self._heard.append,
        }
        self._admin = made(AdminClient, {**properties, **told})

    async def delivering(self, timeout_s: float) -> Delivering:
        """Returns Kafka's settings of the group.

        Raises KafkaReadError if Kafka refuses to tell, DeadlineError if it does not answer within
        `timeout_s` seconds.
        """
        resource = ConfigResource(ConfigResource.Type.GROUP, self._name)
        said = ""
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    asked = self._admin.describe_configs([resource], request_timeout=_ASK_S)
                    try:
                        found = await asyncio.wrap_future(asked[resource])
                        lock_s = int(found[_LOCK].value) / 1_000
                        count = found.get(_COUNT)
                        return Delivering(lock_s, _COUNT_MAX if count is None else int(count.value))
                    except KafkaException as error:
                        said = error.args[0].str()
                        self._check(error.args[0])
                        await asyncio.sleep(_RETRY_S)
        except TimeoutError:
            raise DeadlineError(
                f"Kafka did not tell {_LOCK} of group {self._name} in {timeout_s:g} s; it said "
                f"last: {said or 'nothing'}"
            ) from None

    def _check(self, error: KafkaError) -> None:
        """Raises KafkaReadError for an error that does not pass."""
        if is_for_good(error):
            raise KafkaReadError(
                f"Kafka does not tell {_LOCK} of group {self._name}: {error.str()}; allow it "
                "(DescribeConfigs of the group), or give lock_s"
            )
        self._admin.poll(0)
        for why in filter(None, map(locked_out, self._heard)):
            raise KafkaReadError(why)
        self._heard.clear()

    async def await_state(self, timeout_s: float) -> None:
        """Returns once Kafka can keep the group's state. Kafka begins to when the first member
        joins.

        Raises KafkaReadError if it cannot, or has not begun within `timeout_s` seconds.
        """
        why = await on_thread(share_state.await_state, self._admin, timeout_s)
        if why:
            raise KafkaReadError(why)
