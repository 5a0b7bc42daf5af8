"""The demo's hot broker: look-ups make one busy, and the balancer takes bundles from it by itself.

Nobody asks for a move here. Why there is one is read from the log.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

import click

from anabranch.client import Client
from anabranch.core.balance.history import AutomaticMove
from anabranch.devkit.demo.trace import NAMESPACES
from anabranch.devkit.hot_broker import (
    HOT_BUNDLES,
    SETTINGS,
    BusyLookups,
    HotBroker,
    SeenLoads,
    moves_by_itself,
)
from anabranch.devkit.nodes import NodeProcess
from anabranch.devkit.steady_messages import SteadyMessages

_HOME, _QUIET_HOME = "services/hot", "services/quiet"
# What the trace's namespaces show is asked for by the scenario; the balancer leaves them alone.
RELIEF_SETTINGS: Final = (
    *SETTINGS,
    f"loadBalancerSheddingExcludedNamespaces={','.join(NAMESPACES)}",
)
_PERIOD_S: Final = 0.025
_STEP_SECONDS_MAX: Final = 60.0
_POLL_SECONDS: Final = 0.2


class Relief:
    """One run of it, on nodes that all serve."""

    def __init__(
        self,
        nodes: Sequence[NodeProcess],
        bootstrap_servers: str,
        topic_prefix: str,
        say: Callable[[str], None],
    ) -> None:
        self.moves: list[AutomaticMove] = []
        self.wrong: list[str] = []
        self._scene = HotBroker(nodes, nodes[0], _HOME, _QUIET_HOME)
        self._lookups = BusyLookups(nodes, list(self._scene.topics.values()))
        self._messages: list[SteadyMessages] = []
        self._nodes = nodes
        self._since = 0.0
        self._log = bootstrap_servers, topic_prefix
        self._say = say

    @property
    def sound(self) -> bool:
        """Whether bundles left it, and nobody was refused, or missed anything."""
        return bool(self.moves) and not self.wrong

    async def run(self, service_url: str) -> None:
        """Says what is done, what the balancer goes by, and what it does."""
        try:
            await self._scene.create()
            async with Client(service_url) as writer, Client(service_url) as reader:
                self._messages = [
                    await SteadyMessages.open(topic, _PERIOD_S, writer, reader)
                    for topic in self._scene.all_topics
                ]
                await self._under_messages()
        finally:
            await self._scene.close()

    async def _under_messages(self) -> None:
        hot = self._scene.hot
        self._say(
            f"{hot.name} ({hot.broker_id}) has all {HOT_BUNDLES} bundles of {_HOME}; clients will "
            "look them up as fast as it answers, and nobody will ask for a move"
        )
        async with asyncio.TaskGroup() as group:
            reading = [group.create_task(each.receive()) for each in self._messages]
            sending = [group.create_task(each.send()) for each in self._messages]
            for each in self._messages:  # what it took to begin is over then
                await _until(partial(_has_caught_up, each))
            self._since = time.perf_counter()
            began_ms = (await self._scene.seen()).at_ms
            asking = group.create_task(self._lookups.run())
            is_relieved = await self._watch(began_ms)
            for task in (*sending, asking):
                task.cancel()
            await asyncio.gather(*sending, asking, return_exceptions=True)
            await _until(self._is_complete)
            for task in reading:
                task.cancel()
        self._judge(is_relieved)

    async def _watch(self, began_ms: int) -> bool:
        """Returns when bundles have gone and loads are closer; False where that takes too long."""
        seen = await self._awaited(self._scene.is_hot)
        self._say(f"{self._scene.hot.name} is hot: {seen.text()}")
        if not await _until(self._has_moved):
            return False
        self.moves = await asyncio.to_thread(moves_by_itself, *self._log, began_ms)
        for each in self.moves:
            self._say(f"by itself: {told(each)}")
        if not self.moves:
            return False
        last_ms = self.moves[-1].timestamp_ms
        before = self.moves[0].deviation or seen.deviation
        after = await self._awaited(
            lambda found: found.oldest_ms > last_ms and found.deviation < before
        )
        owners = Counter((await self._scene.owners(_HOME)).values())
        shares = ", ".join(f"{owners[node.broker_id]} at {node.name}" for node in self._nodes)
        self._say(f"relieved: {after.text()}; bundles of {_HOME}: {shares}")
        return after.deviation < before

    async def _has_moved(self) -> bool:
        return await self._scene.held() < HOT_BUNDLES

    async def _is_complete(self) -> bool:
        return all(each.ledger.is_complete for each in self._messages)

    async def _awaited(self, holds: Callable[[SeenLoads], bool]) -> SeenLoads:
        """The loads once that holds, or those at the end of the time for it."""
        seen = await self._scene.seen()

        async def is_so() -> bool:
            nonlocal seen
            seen = await self._scene.seen()
            return holds(seen)

        await _until(is_so)
        return seen

    def _judge(self, is_relieved: bool) -> None:
        if not is_relieved:
            self.wrong.append(f"{self._scene.hot.name} was not relieved in time")
        self.wrong += [f"look-up refused: {why}" for why in self._lookups.refused]
        self.wrong += [line for each in self._messages for line in each.ledger.wrong()]
        times = self._since, time.perf_counter()
        late = [ms for each in self._messages for ms in each.ledger.late_ms(*times)]
        count = sum(len(each.ledger.due) for each in self._messages)
        how = "each once and in its key's order" if not self.wrong else "something is WRONG"
        self._say(
            f"meanwhile {self._lookups.answered} look-ups were answered, and {count} messages "
            f"arrived, the latest after {max(late, default=0.0):.0f} ms: {how}"
        )

    def say(self) -> None:
        """What came of it in a line, and what was wrong."""
        reasons = Counter(each.reason for each in self.moves)
        why = ", ".join(f"{count} {reason}" for reason, count in reasons.items()) or "none"
        click.echo(f"the hot broker: bundles moved by itself: {why}")
        for each in self.wrong:
            click.echo(f"  WRONG: {each}")


def told(move: AutomaticMove) -> str:
    """A move of the balancer in words, with the deviations that it rests on."""
    text = f"{move.bundle} to {move.to}, because {move.reason}"
    if move.deviation is None or move.predicted is None:
        return text
    return f"{text} (deviation {move.deviation:.2f}, expected after it {move.predicted:.2f})"


async def _has_caught_up(messages: SteadyMessages) -> bool:
    return messages.ledger.has_caught_up


async def _until(holds: Callable[[], Awaitable[bool]]) -> bool:
    """Whether that came true in time."""
    deadline = time.monotonic() + _STEP_SECONDS_MAX
    while not await holds():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(_POLL_SECONDS)
    return True
