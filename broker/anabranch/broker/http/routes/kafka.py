"""Kafka's brokers: their load, and draining them (Anabranch's own)."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Path

from anabranch.broker.http.errors import problems
from anabranch.broker.http.models.kafka import KafkaBrokerStats
from anabranch.broker.http.routing import DecidingRoute, Marked
from anabranch.broker.topics.kafka_drains import KafkaDrains

_ID_MAX: Final = 999_999_999
_BrokerId = Annotated[int, Path(ge=0, le=_ID_MAX, description="Kafka's own id of it.")]


def router(drains: KafkaDrains) -> APIRouter:
    """All of them."""
    routes = APIRouter(route_class=DecidingRoute, prefix="/admin/v2/kafka", tags=["kafka"])

    @routes.get("/brokers", dependencies=[Marked], responses=problems(503))
    async def list_kafka_brokers() -> list[KafkaBrokerStats]:
        """Kafka's brokers with their shares of our segments, by id."""
        return [
            KafkaBrokerStats(
                brokerId=each.broker_id,
                rack=each.rack,
                live=each.is_live,
                drained=each.is_drained,
                bytesPerSecond=each.bytes_per_s,
                activeLeaders=each.active_leaders,
                activeReplicas=each.active_replicas,
                sealedLeaders=each.sealed_leaders,
                sealedReplicas=each.sealed_replicas,
            )
            for each in await drains.brokers()
        ]

    path, refusals = "/brokers/{brokerId}/drain", problems(404, 412, 503, 504)

    @routes.put(path, status_code=204, responses=refusals)
    async def drain_kafka_broker(brokerId: _BrokerId) -> None:
        """Places nothing there any more; active segments leave it, one after the other."""
        await drains.drain(brokerId)

    @routes.delete(path, status_code=204, responses=refusals)
    async def undrain_kafka_broker(brokerId: _BrokerId) -> None:
        """Lets segments be placed there again."""
        await drains.undrain(brokerId)

    return routes
