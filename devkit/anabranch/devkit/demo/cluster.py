"""The demo's load on a cluster that runs already: nothing is killed, its own audit judges it."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import click

from anabranch.broker.cli.shared.access import Access
from anabranch.broker.cli.shared.api import connect
from anabranch.broker.cli.topics.dag import draw, fitting
from anabranch.broker.cli.topics.sdk import service_urls, telling_refusals
from anabranch.channel.kafka.topics import check_kafka
from anabranch.core.errors import AnabranchError
from anabranch.core.names import full_name
from anabranch.devkit.demo.figures import say_checked
from anabranch.devkit.demo.homes import make_homes
from anabranch.devkit.demo.load_wave import CONSUMERS, LoadWave, wave_events
from anabranch.devkit.demo.lookups import LookupClients
from anabranch.devkit.demo.messages import Checked, check
from anabranch.devkit.demo.reach import Reach
from anabranch.devkit.demo.reshape import Reshaping
from anabranch.devkit.demo.run import CAST, SEGMENTS
from anabranch.devkit.demo.stored import stored
from anabranch.devkit.demo.trace import Event, load
from anabranch.devkit.demo.traffic import Traffic

_SECONDS_MAX: Final = 30.0
_KNOCK_SECONDS_MAX: Final = 10.0
_PROGRESS_SECONDS: Final = 10.0
_DIFFERING_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class ServingNode:
    """A node of the cluster, by its URL."""

    url: str

    @property
    def name(self) -> str:
        """Its host and port."""
        return self.url.partition("://")[2]


class ClusterDemo:
    """One run; its topics have names of their own, so that the next one does not meet them.

    `who`: as whom nodes are asked; `kafka_security`: librdkafka's properties. Raises
    InvalidInputError.
    """

    def __init__(
        self,
        urls: Sequence[str],
        bootstrap_servers: str,
        duration_s: float,
        who: Access,
        kafka_security: Mapping[str, str],
    ) -> None:
        self._nodes = [ServingNode(url.rstrip("/")) for url in urls]
        self._who = who
        self._reach = Reach(who.tls(), who.credentials(), kafka_security)
        self._kafka = self._reach.kafka(bootstrap_servers)
        self._duration_s = duration_s
        self._began = time.monotonic()
        run = f"{datetime.now(UTC):%Y%m%d-%H%M%S}"
        self._topic = f"services/core/merges-{run}"
        self._wave_topic = f"services/core/load-wave-{run}"

    def run(self) -> int:
        """The exit status: 0 if everything arrived once and in order, and nodes agree.

        Raises AnabranchError where it cannot begin, or go on, CommandRefusedError where who asks
        has no right to it.
        """
        events = load(self._duration_s)
        self._say(f"the trace: {len(events)} merges of OpenStack, at {len(self._nodes)} nodes")
        service_url = self._prepare()
        with telling_refusals():
            try:
                return asyncio.run(self._run(events, service_url))
            except ExceptionGroup as group:
                found = _first(group)
                if found is None:
                    raise
                raise found from group

    def _say(self, text: str) -> None:
        click.echo(f"{time.monotonic() - self._began:6.1f} s  {text}")

    async def _run(self, events: Sequence[Event], service_url: str) -> int:
        reach = self._reach
        clients = LookupClients(self._nodes, reach)
        reshaping = Reshaping(self._topic, self._nodes, self._say, reach)
        wave = LoadWave(self._wave_topic, self._nodes, self._say, reach)
        traffic = Traffic(service_url, self._topic, CAST, self._say, reach)
        wave_traffic = Traffic(service_url, self._wave_topic, CONSUMERS, self._say, reach)
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
        kafka = self._kafka
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

    def _prepare(self) -> str:
        """Makes tenants and namespaces that are not there, and returns where clients connect to."""
        check_kafka(self._kafka, _KNOCK_SECONDS_MAX)
        with connect(self._nodes[0].url, self._who) as admin:
            make_homes(admin)
        found = service_urls([node.url for node in self._nodes], self._who)
        self._say(f"clients connect to {found}")
        return found

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
        urls = tuple(node.url for node in self._nodes)
        async with self._reach.http(urls, timeout=_SECONDS_MAX) as http:
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


def _first(group: ExceptionGroup[Exception]) -> AnabranchError | None:
    """The first of these errors that is made for people."""
    for each in group.exceptions:
        found = _first(each) if isinstance(each, ExceptionGroup) else each
        if isinstance(found, AnabranchError):
            return found
    return None
