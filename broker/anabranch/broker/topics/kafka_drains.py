"""Kafka's brokers as people see them, and what drains them.

Draining is one record of the log. Every node that reads it places nothing there any more, and every
controller moves the segments that have a copy there (`core.topics.controller`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Final

import msgspec

from anabranch.broker.errors import NotFoundError, PreconditionError
from anabranch.broker.placements import PlacementPolicies
from anabranch.broker.runtime import Runtime
from anabranch.broker.topics.placement import KafkaPlacement
from anabranch.core.entities.placement_policy import PolicyKind
from anabranch.core.placement.drain import drained_brokers

_READ_AT_ONCE: Final = 100  # topics, before other requests have their turn


class KafkaBrokerShare(msgspec.Struct, frozen=True):
    """One broker's share of our segments in Kafka.

    `bytes_per_s`: in and out, of the partitions that it leads. The other fields count partitions
    that it leads, and those that it has a copy of. Active segments take messages, and sealed ones
    are only read.
    """

    broker_id: int
    rack: str
    is_live: bool
    is_drained: bool
    bytes_per_s: float
    active_leaders: int
    active_replicas: int
    sealed_leaders: int
    sealed_replicas: int


class KafkaDrains:
    """The requests about Kafka's brokers, for use in the node's event loop."""

    def __init__(
        self, runtime: Runtime, placement: KafkaPlacement, policies: PlacementPolicies
    ) -> None:
        self._runtime = runtime
        self._placement = placement
        self._policies = policies

    async def brokers(self) -> list[KafkaBrokerShare]:
        """All that live, have a copy of something, or are drained, by id.

        Raises UnavailableError.
        """
        survey = await self._placement.fresh()
        drained = drained_brokers(self._runtime.view)
        loads = {each.broker_id: each.load for each in self._placement.brokers}
        active = await self._active()
        leaders: tuple[Counter[int], Counter[int]] = (Counter(), Counter())  # active or sealed
        replicas: tuple[Counter[int], Counter[int]] = (Counter(), Counter())
        for place, partitions in survey.segments.items():
            sealed = place not in active
            for each in partitions:
                replicas[sealed].update(each.replicas)
                if each.leader is not None:
                    leaders[sealed][each.leader] += 1
        known = {*survey.racks, *drained, *replicas[False], *replicas[True]}
        return [
            KafkaBrokerShare(
                broker_id=each,
                rack=survey.racks.get(each, ""),
                is_live=each in survey.racks,
                is_drained=each in drained,
                bytes_per_s=loads.get(each, 0.0),
                active_leaders=leaders[False][each],
                active_replicas=replicas[False][each],
                sealed_leaders=leaders[True][each],
                sealed_replicas=replicas[True][each],
            )
            for each in sorted(known)
        ]

    async def drain(self, broker_id: int) -> None:
        """Nothing new is placed there, and what takes messages leaves it.

        Raises NotFoundError, or PreconditionError if too few would be left.
        """
        survey = await self._placement.fresh()
        if broker_id in drained_brokers(self._runtime.view):
            return
        self._placement.check_left(survey, (broker_id,))
        await self._policies.drain_kafka_broker(broker_id)
        try:
            # Others may have been drained at the same time, of which this node had not read.
            self._placement.check_left(survey, (broker_id,))
        except PreconditionError:
            with contextlib.suppress(NotFoundError):
                await self._policies.delete(PolicyKind.KAFKA_DRAIN, str(broker_id))
            raise
        finally:
            await self._placement.look()

    async def undrain(self, broker_id: int) -> None:
        """Segments may be placed there again. Raises NotFoundError for one that is not drained."""
        if broker_id not in drained_brokers(self._runtime.view):
            raise NotFoundError(f"broker {broker_id} of Kafka is not drained")
        await self._policies.delete(PolicyKind.KAFKA_DRAIN, str(broker_id))
        await self._placement.look()

    async def _active(self) -> set[tuple[int, int]]:
        """The segments that take messages, of all topics, by incarnation and id."""
        view = self._runtime.view
        found: set[tuple[int, int]] = set()
        for number, name in enumerate(list(self._names())):
            if number % _READ_AT_ONCE == _READ_AT_ONCE - 1:
                await asyncio.sleep(0)
            topic = view.topic(name)
            if topic is not None:
                parts = (part for part in topic.segments if part.is_active)
                found.update((topic.incarnation, part.segment_id) for part in parts)
                found.update((topic.incarnation, part.segment_id) for part in topic.children)
        return found

    def _names(self) -> Iterator[str]:
        view = self._runtime.view
        for tenant in view.tenants():
            for namespace in view.namespaces(tenant):
                yield from view.topics(namespace)
