"""A queue's consumer whose deliveries are there, without Kafka."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from anabranch.client import QueueConsumer, QueueSettings, TopicLayout

if TYPE_CHECKING:
    from anabranch.client._consumer.consumer import Membership
    from anabranch.client._queue.messages import Delivery


class Ready:
    """Stands for readers with deliveries."""

    failure = None
    last_trouble = ""

    def __init__(self, *deliveries: Delivery) -> None:
        self._deliveries = list(deliveries)

    def take(self) -> Delivery | None:
        return self._deliveries.pop(0) if self._deliveries else None

    def receiver(self) -> Any:
        return asyncio.timeout(None)

    async def close(self, current: Delivery | None) -> bool:
        return True


def ready_queue(member: Membership, *deliveries: Delivery) -> QueueConsumer:
    """The Kafka topic k is segment 7's."""
    made = QueueConsumer(member, QueueSettings())
    made._reader = cast("Any", Ready(*deliveries))
    made._sources = {"k": (7, {})}
    member.watch._layout = TopicLayout("public/default/orders", 1, 1, {})
    return made
