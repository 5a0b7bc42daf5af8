"""What the demo does to the cluster while it is looked up: moves, splits and two crashes."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import httpx
import msgspec

from anabranch.core.ring import parse_range, topic_hash
from anabranch.devkit.demo.reshape import Reshaping
from anabranch.devkit.demo.trace import NAMESPACES, Event
from anabranch.devkit.nodes import NodeProcess, await_ready

_SECONDS_MAX: Final = 30.0
_TAKE_OVER_SECONDS_MAX: Final = 30.0
_POLL_SECONDS: Final = 0.1
_AGREE_POLL_SECONDS: Final = 0.001
_PAUSE_SECONDS: Final = 0.7  # between two changes
_SPLITS_MAX: Final = 10
_RESTART_AFTER_SECONDS: Final = 4.0  # from the take-over
_CONTROLLER_DIES_AT: Final = (0.2, 0.43)  # of the trace's duration
_LEADER_DIES_AT: Final = 0.66
_DRAIN_AT: Final = 0.87

Say = Callable[[str], None]


class Crash(msgspec.Struct, frozen=True):
    """A node that was killed: when, and how many bundles it held."""

    what: str
    broker: str
    at_ms: float
    bundles: int


class Scenario:
    """Drives the changes; every step is said as it is done."""

    def __init__(
        self,
        serving: list[NodeProcess],
        events: Sequence[Event],
        reshaping: Reshaping,
        say: Say,
    ) -> None:
        self.crashes: list[Crash] = []
        self.agreed_ms: list[float] = []  # transfer: request until every node names the new owner
        self.refused: list[str] = []  # changes that met another change, or a node that was down
        self.done = {"unload": 0, "transfer": 0, "split": 0}
        self._serving = serving  # others look at it too, so it is changed in place
        self._reshaping = reshaping
        self._say = say
        self._topics: dict[str, list[str]] = {}
        for event in events:
            self._topics.setdefault(event.namespace, []).append(event.topic)
        self._random = random.Random(7)  # the same demo each time
        self._http = httpx.AsyncClient(timeout=_SECONDS_MAX)
        self._changing = asyncio.Lock()

    async def close(self) -> None:
        """Ends the connections."""
        await self._http.aclose()

    # --- the whole ----------------------------------------------------------------------

    async def create(self) -> None:
        """The tenants and namespaces that the trace's topics live in."""
        tenants = dict.fromkeys(home.partition("/")[0] for home in NAMESPACES)
        for tenant in tenants:
            await self._put(f"tenants/{tenant}", {"allowedClusters": ["standalone"]})
        for home, bundles in NAMESPACES.items():
            await self._put(f"namespaces/{home}", {"bundles": {"numBundles": bundles}})
        self._say(
            f"created tenants {', '.join(tenants)} and {len(NAMESPACES)} namespaces with "
            f"{sum(NAMESPACES.values())} bundles"
        )

    async def run(self, duration_s: float) -> None:
        """Changes all the time; crashes and a graceful stop at their times."""
        began = time.monotonic()

        async def at(share: float, what: Callable[[], Awaitable[None]]) -> None:
            await asyncio.sleep(max(0.0, began + share * duration_s - time.monotonic()))
            await what()

        changing = asyncio.create_task(self._keep_changing())
        try:
            for share in _CONTROLLER_DIES_AT:
                await at(share, self._kill_the_controller)
            await at(_LEADER_DIES_AT, self._kill_the_leader)
            await at(_DRAIN_AT, self._drain)
        finally:
            changing.cancel()
            await asyncio.gather(changing, return_exceptions=True)

    # --- changes ------------------------------------------------------------------------

    async def _keep_changing(self) -> None:
        kinds = ("transfer", "unload", "transfer", "split")
        turn = 0
        while True:
            kind = kinds[turn % len(kinds)]
            turn += 1
            if kind == "split" and self.done["split"] >= _SPLITS_MAX:
                kind = "transfer"
            async with self._changing:
                try:
                    await self._change(kind)
                except (httpx.HTTPError, RequestRefusedError) as error:
                    self.refused.append(f"{kind}: {error}")
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _change(self, kind: str) -> None:
        home = self._random.choice([home for home in NAMESPACES if home in self._topics])
        owned = [b for b in await self._bundles(home) if b["state"] == "OWNED"]
        if not owned:
            return
        bundle = self._random.choice(owned)
        path = f"namespaces/{home}/{bundle['bundle']}"
        if kind == "transfer":
            others = [id_ for id_ in await self._get("brokers") if id_ != bundle["broker"]]
            if not others:
                return
            target = self._random.choice(others)
            self._say(f"transfer {home}/{bundle['bundle']}: {bundle['broker']} -> {target}")
            sent = time.monotonic()
            await self._put(f"{path}/unload?destinationBroker={target}")
            await self._until_named(home, bundle["bundle"], target)
            self.agreed_ms.append((time.monotonic() - sent) * 1000)
        else:
            self._say(f"{kind} {home}/{bundle['bundle']} of {bundle['broker']}")
            await self._put(f"{path}/{kind}")
        self.done[kind] += 1

    async def _until_named(self, home: str, bundle: str, target: str) -> None:
        """Returns when each node that runs answers look-ups of the bundle with its new owner."""
        part = parse_range(bundle)
        topic = next((t for t in self._topics[home] if topic_hash(t) in part), None)
        if topic is None:
            return
        path = f"/lookup/v2/topic/{topic.replace('://', '/')}"
        deadline = time.monotonic() + _SECONDS_MAX

        async def named(node: NodeProcess) -> None:
            while time.monotonic() < deadline:
                answer = await self._http.get(node.url + path)
                if answer.is_success and answer.json()["httpUrl"] == f"http://{target}":
                    return
                await asyncio.sleep(_AGREE_POLL_SECONDS)
            raise RequestRefusedError(f"{node.name} does not name {target} for {home}/{bundle}")

        await asyncio.gather(*(named(node) for node in self._serving))

    # --- crashes ------------------------------------------------------------------------

    async def _kill_the_controller(self) -> None:
        controller = await self._reshaping.controller()
        node = next(node for node in self._serving if node.broker_id == controller)
        await self._kill("the topic's controller", node, in_a_change=True)

    async def _kill_the_leader(self) -> None:
        leader = await self._leader()
        node = next(node for node in self._serving if node.broker_id == leader)
        await self._kill("the leader", node)
        self._say(f"the leader is now {await self._leader()}")

    async def _kill(self, what: str, node: NodeProcess, *, in_a_change: bool = False) -> None:
        async with self._changing, self._reshaping.changing:
            held = await self._held_by(node.broker_id)
            self._serving.remove(node)
            begun = await self._reshaping.begin() if in_a_change else None
            at_ms = time.time() * 1000
            node.kill()
            met = f" in the middle of a {begun.change}" if begun else ""
            self._say(
                f"SIGKILL of {what}, {node.name} ({node.broker_id}), with {held} bundles{met}"
            )
        self.crashes.append(Crash(what, node.broker_id, at_ms, held))
        deadline = time.monotonic() + _TAKE_OVER_SECONDS_MAX
        while await self._held_by(node.broker_id):
            if time.monotonic() > deadline:
                raise RequestRefusedError(
                    f"bundles of {node.broker_id} were not taken over in time"
                )
            await asyncio.sleep(_POLL_SECONDS)
        took_s = time.time() - at_ms / 1000
        self._say(f"all bundles of {node.name} are served elsewhere after {took_s:.1f} s")
        if begun:
            await self._reshaping.finished(begun)
        await asyncio.sleep(_RESTART_AFTER_SECONDS)
        await self._start(node)

    async def _drain(self) -> None:
        node = self._serving[0]
        async with self._changing:
            held = await self._held_by(node.broker_id)
            self._serving.remove(node)
            sent = time.monotonic()
            node.terminate()
            self._say(f"SIGTERM of {node.name} with {held} bundles: it hands them over")
            await asyncio.to_thread(node.wait, _SECONDS_MAX)
        self._say(f"{node.name} ended by itself after {time.monotonic() - sent:.1f} s")
        await self._start(node)

    async def _start(self, node: NodeProcess) -> None:
        began = time.monotonic()
        node.start()
        await asyncio.to_thread(await_ready, [node])
        self._serving.append(node)
        self._say(f"{node.name} has joined again, {time.monotonic() - began:.1f} s after its start")

    # --- questions ----------------------------------------------------------------------

    async def _leader(self) -> str:
        """The leader, once there is one that runs."""
        deadline = time.monotonic() + _SECONDS_MAX
        while time.monotonic() < deadline:
            answer = await self._http.get(self._serving[0].url + "/admin/v2/brokers/leaderBroker")
            if answer.is_success:
                found: str = answer.json()["brokerId"]
                if found in {node.broker_id for node in self._serving}:
                    return found
            await asyncio.sleep(_POLL_SECONDS)
        raise RequestRefusedError("no leader was elected in time")

    async def _held_by(self, broker: str) -> int:
        """Bundles that a broker has, or that are on their way to or from it."""
        counts = [
            sum(broker in (bundle["broker"], bundle["source"]) for bundle in await self._bundles(h))
            for h in NAMESPACES
        ]
        return sum(counts)

    async def bundle_lists(self) -> list[list[dict[str, Any]]]:
        """Each node's own list of all bundles, in one order."""
        found = []
        for node in self._serving:
            answers = [
                await self._http.get(f"{node.url}/admin/v2/namespaces/{home}/bundles/ownership")
                for home in NAMESPACES
            ]
            found.append([bundle for answer in answers for bundle in answer.json()["bundles"]])
        return found

    async def _bundles(self, home: str) -> list[dict[str, Any]]:
        answer = await self._get(f"namespaces/{home}/bundles/ownership")
        found: list[dict[str, Any]] = answer["bundles"]
        return found

    async def _get(self, path: str) -> Any:
        return _checked(await self._http.get(f"{self._serving[-1].url}/admin/v2/{path}")).json()

    async def _put(self, path: str, body: Any = None) -> None:
        node = self._random.choice(self._serving)
        _checked(await self._http.put(f"{node.url}/admin/v2/{path}", json=body))


class RequestRefusedError(Exception):
    """A node refused a request; its reason is the message."""


def _checked(answer: httpx.Response) -> httpx.Response:
    if answer.is_success:
        return answer
    raise RequestRefusedError(f"{answer.status_code} {answer.json().get('reason', '')}")
