"""What Kafka says of a share group: for how long it locks what it gives to a consumer."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource

from anabranch.client.errors import DeadlineError, KafkaReadError
from anabranch.client.kafka_options import LIBRDKAFKA_LOG
from anabranch.client.read_trouble import is_for_good, locked_out

_LOCK: Final = "share.record.lock.duration.ms"
_ASK_S: Final = 3.0
_RETRY_S: Final = 0.2


async def lock_of(kafka: Mapping[str, Any], timeout_s: float) -> float:
    """For how many seconds the consumers of `kafka`'s group may hold a message.

    Raises KafkaReadError when Kafka refuses to tell, DeadlineError when it does not answer.
    """
    properties = dict(kafka)
    group_id = properties.pop("group.id")
    heard: list[KafkaError] = []
    told: dict[str, Any] = {"log_level": 3, "error_cb": heard.append}
    admin = AdminClient({**properties, **told}, logger=LIBRDKAFKA_LOG)
    resource = ConfigResource(ConfigResource.Type.GROUP, group_id)
    said = ""
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                asked = admin.describe_configs([resource], request_timeout=_ASK_S)[resource]
                try:
                    found = await asyncio.wrap_future(asked)
                    return int(found[_LOCK].value) / 1_000
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
