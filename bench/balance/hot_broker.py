"""How late messages are while the balancer relieves a hot broker, beside transfers by hand."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial

from anabranch.client import Client
from anabranch.devkit.nodes import MEASURES, await_ready, stop_all
from bench.balance.steady_messages import SteadyMessages
from bench.figure import Measured, spread
from bench.place import Place
from support.hot_broker import (
    SETTINGS,
    BusyLookups,
    HotBroker,
    moves_by_itself,
)

_PERIOD_S = 0.01
_CALM_S = 3.0
_AROUND_S = 1.0  # after a move, belongs to it
_BEFORE_S = 0.05
_STEP_S_MAX = 120.0
_POLL_S = 0.05


def relieved(place: Place) -> Measured:
    """The worst message of the bundles that are shed, by the worst of as many moved by hand."""
    return asyncio.run(_relieved(place))


async def _relieved(place: Place) -> Measured:
    prefix = f"bench-hot-{place.number()}."
    nodes = [place.lonely_node(prefix, *SETTINGS, *MEASURES) for _ in range(2)]
    try:
        for node in nodes:
            node.start()
        await asyncio.to_thread(await_ready, nodes)
        scene = HotBroker(nodes, nodes[0], "public/hot", "public/quiet")
        url = ",".join(node.service_url() for node in nodes).replace(",pulsar://", ",")
        try:
            await scene.create()
            async with Client(url) as writer, Client(url) as reader:
                run = _Run(scene, BusyLookups(nodes, list(scene.topics.values())))
                for topic in scene.all_topics:
                    each = await SteadyMessages.open(topic, _PERIOD_S, writer, reader)
                    run.messages[topic] = each
                return await run.measured(place.kafka.bootstrap_servers, prefix)
        finally:
            await scene.close()
    finally:
        await asyncio.to_thread(stop_all, nodes)


class _Run:
    """One relief with all its messages, and then transfers by hand while look-ups go on."""

    def __init__(self, scene: HotBroker, lookups: BusyLookups) -> None:
        self.messages: dict[str, SteadyMessages] = {}
        self._scene = scene
        self._lookups = lookups

    async def measured(self, bootstrap_servers: str, prefix: str) -> Measured:
        scene = self._scene
        async with asyncio.TaskGroup() as group:
            receiving = [group.create_task(each.receive()) for each in self.messages.values()]
            going = [group.create_task(each.send()) for each in self.messages.values()]
            for each in self.messages.values():  # what it took to begin is over then
                await _until(partial(_has_caught_up, each), "the first messages come")
            await asyncio.sleep(_CALM_S)
            calm = time.perf_counter() - _CALM_S / 2, time.perf_counter()
            began_ms = (await scene.seen()).at_ms
            had = await scene.held()
            going.append(group.create_task(self._lookups.run()))
            await _until(lambda: self._has_fewer(had), "bundles leave the hot broker")
            log_to_here = time.perf_counter() - time.time()
            moves = await asyncio.to_thread(moves_by_itself, bootstrap_servers, prefix, began_ms)
            shed = {
                each.bundle.rpartition("/")[2]: each.timestamp_ms / 1000 + log_to_here
                for each in moves
                if each.bundle.startswith(f"{scene.home}/")
            }
            await asyncio.sleep(_AROUND_S)
            by_hand = [await self._transfer(part) for part in list(scene.topics)[-len(shed) :]]
            for task in going:
                task.cancel()
            await asyncio.gather(*going, return_exceptions=True)
            await _until(self._is_complete, "every message comes")
            for task in receiving:
                task.cancel()
        wrong = [line for each in self.messages.values() for line in each.ledger.wrong()]
        if wrong or self._lookups.refused:
            raise RuntimeError(f"{wrong} {self._lookups.refused}")
        worst = [self._worst_ms(part, at, at) for part, at in shed.items()]
        limits = [self._worst_ms(*each) for each in by_hand]
        quiet = [max(each.ledger.late_ms(*calm)) for each in self.messages.values()]
        return Measured(
            max(worst),
            "ms",
            max(worst) / max(limits),
            1.0,
            limit=max(limits),
            limit_what="the worst of as many transfers by hand, under the same look-ups",
            details={
                "worst_of_each_shed": spread(worst),
                "worst_of_each_by_hand": spread(limits),
                "worst_of_each_before": spread(quiet),
                "reasons": sorted({each.reason for each in moves}),
                "lookups": self._lookups.answered,
            },
        )

    async def _has_fewer(self, had: int) -> bool:
        return await self._scene.held() < had

    async def _is_complete(self) -> bool:
        return all(each.ledger.is_complete for each in self.messages.values())

    async def _transfer(self, part: str) -> tuple[str, float, float]:
        """To the node that does not have it; when it was asked for, and done."""
        scene = self._scene
        owner = (await scene.owners(scene.home))[part]
        target = next(broker for broker in (await scene.seen()).loads if broker != owner)
        began = time.perf_counter()
        await scene.transfer(scene.home, part, target)
        ended = time.perf_counter()
        await asyncio.sleep(_AROUND_S)
        return part, began, ended

    def _worst_ms(self, part: str, began: float, ended: float) -> float:
        messages = self.messages[self._scene.topics[part]]
        return max(messages.ledger.late_ms(began - _BEFORE_S, ended + _AROUND_S))


async def _has_caught_up(messages: SteadyMessages) -> bool:
    return messages.ledger.has_caught_up


async def _until(holds: Callable[[], Awaitable[bool]], what: str) -> None:
    deadline = time.monotonic() + _STEP_S_MAX
    while not await holds():
        if time.monotonic() > deadline:
            raise RuntimeError(f"not within {_STEP_S_MAX:.0f} s: {what}")
        await asyncio.sleep(_POLL_S)
