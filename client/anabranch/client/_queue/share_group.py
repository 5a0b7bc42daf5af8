"""What Kafka says of a share group: how long it locks a message, and how often it gives it out."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource

from anabranch.client._consumer.reads import is_for_good, locked_out
from anabranch.client._errors import DeadlineError, KafkaReadError
from anabranch.client._kafka_options import ADMIN, LIBRDKAFKA_LOG

_LOCK: Final = "share.record.lock.duration.ms"
_COUNT: Final = "share.delivery.count.limit"
_COUNT_MAX: Final = 5  # Kafka's own, where it does not tell
_ASK_S: Final = 3.0
_RETRY_S: Final = 0.2


class Delivering(msgspec.Struct, frozen=True):
    """For how many seconds a consumer may hold a message; how often Kafka gives it out at most."""

    lock_s: float
    count_max: int = _COUNT_MAX


async def delivering_of(kafka: Mapping[str, Any], timeout_s: float) -> Delivering:
    """How Kafka deals with the messages of `kafka`'s group.

    Raises KafkaReadError when Kafka refuses to tell, DeadlineError when it does not answer.
    """
    properties = dict(kafka)
    group_id = properties.pop("group.id")
    heard: list[KafkaError] = []
    told: dict[str, Any] = {**ADMIN, "error_cb": heard.append}
    admin = AdminClient({**properties, **told}, logger=LIBRDKAFKA_LOG)
    resource = ConfigResource(ConfigResource.Type.GROUP, group_id)
    said = ""
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                asked = admin.describe_configs([resource], request_timeout=_ASK_S)[resource]
                try:
                    found = await asyncio.wrap_future(asked)
                    lock_s = int(found[_LOCK].value) / 1_000
                    count = found.get(_COUNT)
                    return Delivering(lock_s, _COUNT_MAX if count is None else int(count.value))
                except KafkaException as error:
                    said = error.args[0].str()
                    if is_for_good(error.args[0]):
                        raise KafkaReadError(
                            f"Kafka does not tell {_LOCK} of group {group_id}: {said}; allow it "
                            "(DescribeConfigs of the group), or give lock_s"
                        ) from None
                    admin.poll(0)
                    for why in filter(None, map(locked_out, heard)):
                        raise KafkaReadError(why) from None
                    heard.clear()
                    await asyncio.sleep(_RETRY_S)
    except TimeoutError:
        raise DeadlineError(
            f"Kafka did not tell {_LOCK} of group {group_id} in {timeout_s:g} s; it said last: "
            f"{said or 'nothing'}"
        ) from None
