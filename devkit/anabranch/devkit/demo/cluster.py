"""The demo's load on a cluster that runs already: nothing is killed, its own audit judges it."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import click
import httpx

from anabranch.broker.cli.topics.dag import draw, fitting
from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.core.errors import AnabranchError
from anabranch.core.names import full_name
from anabranch.devkit.demo.figures import say_checked
from anabranch.devkit.demo.load_wave import CONSUMERS, LoadWave, wave_events
from anabranch.devkit.demo.lookups import LookupClients
from anabranch.devkit.demo.messages import Checked, check
from anabranch.devkit.demo.reshape import Reshaping
from anabranch.devkit.demo.run import CAST, SEGMENTS
from anabranch.devkit.demo.stored import stored
from anabranch.devkit.demo.trace import NAMESPACES, Event, load
from anabranch.devkit.demo.traffic import Traffic

_SECONDS_MAX: Final = 30.0
_PROGRESS_SECONDS: Final = 10.0
_DIFFERING_SHOWN: Final = 5


class ClusterUnavailableError(AnabranchError):
    """A node of the cluster did not do what the demo begins with."""


@dataclass(frozen=True, slots=True)
class ServingNode:
    """A node of the cluster, by its URL."""

    url: str

    @property
    def name(self) -> str:
        """Its host and port."""
        return self.url.partition("://")[2]


class ClusterDemo:
    """One run; its topics have names of their own, so that the next one does not meet them."""

    def __init__(self, urls: Sequence[str], bootstrap_servers: str, duration_s: float) -> None:
        self._nodes = [ServingNode(url.rstrip("/")) for url in urls]
        self._kafka = bootstrap_servers
        self._duration_s = duration_s
        self._began = time.monotonic()
        run = f"{datetime.now(UTC):%Y%m%d-%H%M%S}"
        self._topic = f"services/core/merges-{run}"
        self._wave_topic = f"services/core/load-wave-{run}"

    def run(self) -> int:
        """The exit status: 0 if everything arrived once and in order, and nodes agree."""
        events = load(self._duration_s)
        self._say(f"the trace: {len(events)} merges of OpenStack, at {len(self._nodes)} nodes")
        return asyncio.run(self._run(events))

    def _say(self, text: str) -> None:
        click.echo(f"{time.monotonic() - self._began:6.1f} s  {text}")

    async def _run(self, events: Sequence[Event]) -> int:
        service_url = await self._prepare()
        clients = LookupClients(self._nodes)
        reshaping = Reshaping(self._topic, self._nodes, self._say)
        wave = LoadWave(self._wave_topic, self._nodes, self._say)
        traffic = Traffic(service_url, self._topic, CAST, self._say)
        wave_traffic = Traffic(service_url, self._wave_topic, CONSUMERS, self._say)
        try:
            await reshaping.create(SEGMENTS)
            await wave.create()
            await traffic.start()
            await wave_traffic.start()
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(wave.run())
                progress = group.create_task(self._progress(clients, traffic, len(events)))
                changing = group.create_task(reshaping.run())
                rising = group.create_task(
                    wave_traffic.run(wave_events(events, self._duration_s), self._duration_s)
                )
                sending = group.create_task(traffic.run(events, self._duration_s))
                await clients.run(events)
                changing.cancel()
                await sending
                await rising
                progress.cancel()
                watching.cancel()
            layout = await reshaping.layout()
            stats, wave_stats = await reshaping.stats(), await wave.stats()
            differing = await self._differing(events)
        finally:
            for each in (traffic, wave_traffic, wave, clients, reshaping):
                await each.close()
        click.echo("\n" + fitting(draw(layout), sys.stdout.encoding) + "\n")
        kafka = KafkaConnection(self._kafka)
        sent, waved = traffic.sent, wave_traffic.sent
        checked = Checked(
            {
                "readers (stream)": check(sent, traffic.arrivals, traffic.spans),
                "workers (queue)": check(sent, traffic.queued, None),
                "Kafka": check(sent, stored(kafka, stats), traffic.spans),
                "the load wave's readers": check(waved, wave_traffic.arrivals, wave_traffic.spans),
                "the load wave in Kafka": check(
                    waved, stored(kafka, wave_stats), wave_traffic.spans
                ),
            },
            failed=tuple(traffic.failed + wave_traffic.failed),
        )
        say_checked(checked)
        wave.say()
        self._say_look_ups(clients, differing)
        done = ", ".join(f"{count} {kind}" for kind, count in reshaping.kinds.items())
        how = "once and in its key's order" if checked.sound else "NOT as it should"
        self._say(f"{full_name(self._topic)} saw {done}; every message arrived {how}")
        sound = checked.sound and wave.has_turned and not clients.failed and not differing
        return 0 if sound else 1

    async def _prepare(self) -> str:
        """Makes tenants and namespaces that are not there, and returns where clients connect to."""
        bodies = {
            f"tenants/{home.partition('/')[0]}": {"allowedClusters": ["standalone"]}
            for home in NAMESPACES
        }
        spaces = {f"namespaces/{h}": {"bundles": {"numBundles": n}} for h, n in NAMESPACES.items()}
        found: list[str] = []
        async with httpx.AsyncClient(timeout=_SECONDS_MAX) as http:
            try:
                for path, body in {**bodies, **spaces}.items():
                    answer = await http.put(f"{self._nodes[0].url}/admin/v2/{path}", json=body)
                    if answer.status_code != httpx.codes.CONFLICT:  # of an earlier run
                        answer.raise_for_status()
                for node in self._nodes:
                    answer = await http.get(f"{node.url}/admin/v2/brokers/status")
                    answer.raise_for_status()
                    found.append(str(answer.json()["serviceUrl"]))
            except httpx.HTTPError as error:
                raise ClusterUnavailableError(
                    f"a node does not answer as it should: {error!r}; is the cluster up, and does "
                    "this machine know the names that its nodes advertise?"
                ) from None
        self._say(f"clients connect to {', '.join(found)}")
        return ",".join(found).replace(",pulsar://", ",")

    async def _progress(self, clients: LookupClients, traffic: Traffic, total: int) -> None:
        while True:
            await asyncio.sleep(_PROGRESS_SECONDS)
            self._say(
                f"look-ups: {len(clients.answered)} of {total} answered; messages: "
                f"{len(traffic.sent)} sent, {len(traffic.arrivals)} and {len(traffic.queued)} "
                "received"
            )

    async def _differing(self, events: Sequence[Event]) -> list[str]:
        """Topics that nodes answer differently, now that nothing moves."""
        found = []
        async with httpx.AsyncClient(timeout=_SECONDS_MAX) as http:
            for topic in sorted({event.topic for event in events}):
                path = f"/lookup/v2/topic/{topic.replace('://', '/')}"
                answers = {(await http.get(node.url + path)).text for node in self._nodes}
                if len(answers) > 1:
                    found.append(f"{topic}: {' or '.join(sorted(answers))}")
        return found

    def _say_look_ups(self, clients: LookupClients, differing: Sequence[str]) -> None:
        again = sum(clients.refused.values())
        click.echo(
            f"look-ups: {len(clients.answered)} answered, {len(clients.failed)} failed, {again} "
            f"tried again at another node; topics that nodes answer differently: {len(differing)}"
        )
        for each in (*clients.failed[:_DIFFERING_SHOWN], *differing[:_DIFFERING_SHOWN]):
            click.echo(f"  WRONG: {each}")
