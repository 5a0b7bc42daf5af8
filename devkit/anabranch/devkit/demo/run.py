"""The demo from start to end: cluster, trace, scenario, archive, audit, figures."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from anabranch.broker.cli.topics.dag import draw, fitting
from anabranch.broker.cli.topics.sdk import configure_sdk_log
from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.kafka.topics import Topics
from anabranch.core.names import full_name
from anabranch.devkit import ports
from anabranch.devkit.demo.figures import say_checked, say_figures
from anabranch.devkit.demo.history import History
from anabranch.devkit.demo.load_wave import CONSUMERS, SETTINGS, WAVE_TOPIC, LoadWave, wave_events
from anabranch.devkit.demo.lookups import LookupClients
from anabranch.devkit.demo.messages import Checked, check
from anabranch.devkit.demo.relief import RELIEF_SETTINGS, Relief
from anabranch.devkit.demo.reshape import Reshaping
from anabranch.devkit.demo.scenario import Scenario
from anabranch.devkit.demo.stored import stored
from anabranch.devkit.demo.trace import Event, load
from anabranch.devkit.demo.traffic import DemoConsumers, Traffic
from anabranch.devkit.kafka.embedded import EmbeddedKafka
from anabranch.devkit.nodes import HOST, NodeProcess, await_ready, stop_all
from anabranch.spark_replay.archive.writer import ArchiveOptions, run_archive
from anabranch.spark_replay.audit.run import AuditOptions, run_audit

_NODES: Final = 3
_PREFIX: Final = "anabranch."
_PROGRESS_SECONDS: Final = 10.0
# In the largest namespace, whose bundles move and split most.
_TOPIC: Final = "services/core/merges"
SEGMENTS: Final = 2
CAST: Final = DemoConsumers(
    readers=("reader-a", "reader-b"),
    workers=("worker-a", "worker-b"),
    comings=((0.3, "reader-c"),),
    leavings=((0.75, "reader-a"),),
)


class DemoResult(msgspec.Struct, frozen=True):
    """What a run leaves to be checked and told. `stats`: each topic's, at the end."""

    clients: LookupClients
    reshaping: Reshaping
    scenario: Scenario
    traffic: Traffic
    stats: dict[str, Any]
    wave: LoadWave
    wave_traffic: Traffic
    wave_stats: dict[str, Any]
    relief: Relief


class Demo:
    """One run in a directory of its own."""

    def __init__(self, folder: Path, duration_s: float) -> None:
        self._folder = folder
        self._duration_s = duration_s
        self._began = time.monotonic()
        self._kafka = EmbeddedKafka(folder / "kafka")
        self._nodes: list[NodeProcess] = []

    def run(self) -> int:
        """The exit status: 0 if the audit found nothing and every look-up was right."""
        events = load(self._duration_s)
        topics = {event.topic for event in events}
        self._say(f"the trace: {len(events)} merges of OpenStack, {len(topics)} topics")
        try:
            self._start()
            driven = asyncio.run(self._drive(events))
            # In turn: what is handed to a node that stops as well would be an orphan for the audit.
            for node in self._nodes:
                stop_all([node])
            self._say("all nodes have stopped; the log is read once more, look-ups are checked")
            kafka = KafkaConnection(self._kafka.bootstrap_servers)
            history = History()
            history.read(kafka, Topics(_PREFIX))
            wrong = history.wrong(driven.clients.answered)
            checked = self._check_messages(kafka, driven)
            driven.wave.write(self._folder / "autoscale.html")
            audited = self._audit()
        finally:
            stop_all(self._nodes)
            self._kafka.stop()
        say_figures(
            driven.clients, driven.scenario, driven.reshaping, driven.traffic, history, wrong
        )
        say_checked(checked)
        driven.wave.say()
        driven.relief.say()
        click.echo(f"\nreports: {self._report}, autoscale.html beside it")
        click.echo(f"the whole demo took {time.monotonic() - self._began:.0f} s")
        arrived = checked.sound and not driven.clients.failed and not wrong
        if not arrived or not driven.wave.has_turned or not driven.relief.sound:
            return 1
        return audited

    def _check_messages(self, kafka: KafkaConnection, driven: DemoResult) -> Checked:
        """Holds what arrived at the consumers, and what Kafka has, against what was sent."""
        traffic, wave = driven.traffic, driven.wave_traffic
        checked = Checked(
            {
                "readers (stream)": check(traffic.sent, traffic.arrivals, traffic.spans),
                "workers (queue)": check(traffic.sent, traffic.queued, None),
                "Kafka": check(traffic.sent, stored(kafka, driven.stats), traffic.spans),
                "the load wave's readers": check(wave.sent, wave.arrivals, wave.spans),
                "the load wave in Kafka": check(
                    wave.sent, stored(kafka, driven.wave_stats), wave.spans
                ),
            },
            failed=tuple(traffic.failed + wave.failed),
        )
        how = "all are there, once and in order" if checked.sound else "something is WRONG"
        self._say(f"every message is checked: {how}")
        return checked

    @property
    def _report(self) -> Path:
        return self._folder / "audit.html"

    def _say(self, text: str) -> None:
        click.echo(f"{time.monotonic() - self._began:6.1f} s  {text}")

    def _start(self) -> None:
        self._say("starting Kafka")
        self._kafka.start()
        self._say(f"starting {_NODES} nodes")
        self._nodes += [
            NodeProcess(
                f"node-{number}",
                ports.free_port(HOST),
                self._kafka.bootstrap_servers,
                self._folder,
                f"topicPrefix={_PREFIX}",
                "snapshotIntervalSeconds=10",  # so that there is one to hold against the log
                *SETTINGS,
                *RELIEF_SETTINGS,
                service_port=ports.free_port(HOST),  # the same after a restart
            )
            for number in range(_NODES)
        ]
        for node in self._nodes:
            node.start()
        await_ready(self._nodes)
        for node in self._nodes:
            self._say(f"{node.name} serves at {node.url} (process {node.pid})")

    async def _drive(self, events: Sequence[Event]) -> DemoResult:
        serving = list(self._nodes)
        clients = LookupClients(self._nodes)
        reshaping = Reshaping(_TOPIC, serving, self._say)
        scenario = Scenario(serving, events, reshaping, self._say)
        url = ",".join(node.service_url() for node in self._nodes).replace(",pulsar://", ",")
        traffic = Traffic(url, _TOPIC, CAST, self._say)
        wave = LoadWave(WAVE_TOPIC, serving, self._say)
        wave_traffic = Traffic(url, WAVE_TOPIC, CONSUMERS, self._say)
        waves = wave_events(events, self._duration_s)
        relief = Relief(self._nodes, self._kafka.bootstrap_servers, _PREFIX, self._say)
        with (self._folder / "clients.log").open("w", encoding="utf-8") as log:
            configure_sdk_log(log, logging.INFO)
            try:
                await scenario.create()
                await reshaping.create(SEGMENTS)
                await wave.create()
                await traffic.start()
                await wave_traffic.start()
                async with asyncio.TaskGroup() as group:
                    watching = group.create_task(wave.run())
                    rising = group.create_task(wave_traffic.run(waves, self._duration_s))
                    await self._run(events, clients, reshaping, scenario, traffic)
                    await rising
                    watching.cancel()
                stats, wave_stats = await reshaping.stats(), await wave.stats()
                await relief.run(url)
                await self._compare(scenario)
            finally:
                await traffic.close()
                await wave_traffic.close()
                await wave.close()
                await clients.close()
                await reshaping.close()
                await scenario.close()
        return DemoResult(
            clients, reshaping, scenario, traffic, stats, wave, wave_traffic, wave_stats, relief
        )

    async def _run(
        self,
        events: Sequence[Event],
        clients: LookupClients,
        reshaping: Reshaping,
        scenario: Scenario,
        traffic: Traffic,
    ) -> None:
        """Everything at once, until the trace is over and all that was sent has arrived."""
        async with asyncio.TaskGroup() as group:
            progress = group.create_task(self._progress(clients, traffic, len(events)))
            looking = group.create_task(clients.run(events))
            sending = group.create_task(traffic.run(events, self._duration_s))
            changing = group.create_task(reshaping.run())
            await scenario.run(self._duration_s)
            await looking
            changing.cancel()
            await sending
            progress.cancel()
        layout = await reshaping.layout()
        self._say(
            f"the trace is over; {full_name(_TOPIC)} has {len(layout.active)} active and "
            f"{len(layout.segments) - len(layout.active)} sealed segments:"
        )
        click.echo("\n" + fitting(draw(layout), sys.stdout.encoding) + "\n")

    async def _compare(self, scenario: Scenario) -> None:
        lists = await scenario.bundle_lists()
        same = all(one == lists[0] for one in lists)
        self._say(
            f"{len(lists)} nodes list {len(lists[0])} bundles, "
            f"{'all the same' if same else 'and their lists DIFFER'}"
        )

    async def _progress(self, clients: LookupClients, traffic: Traffic, total: int) -> None:
        while True:
            await asyncio.sleep(_PROGRESS_SECONDS)
            self._say(
                f"look-ups: {len(clients.answered)} of {total} answered, "
                f"{len(clients.failed)} failed; messages: {len(traffic.sent)} sent, "
                f"{len(traffic.failed)} failed, {len(traffic.arrivals)} and {len(traffic.queued)} "
                "received"
            )

    def _audit(self) -> int:
        servers, archive_dir = self._kafka.bootstrap_servers, self._folder / "archive"
        self._say("archiving the log with Spark")
        archived = run_archive(
            ArchiveOptions(
                bootstrap_servers=servers,
                archive_dir=archive_dir,
                topic_prefix=_PREFIX,
                once=True,
                scratch_dir=self._folder,
            )
        )
        if archived:
            return archived
        self._say("auditing archive and log with Spark\n")
        return run_audit(
            AuditOptions(
                bootstrap_servers=servers,
                topic_prefix=_PREFIX,
                archive_dir=archive_dir,
                html_path=self._report,
                json_path=str(self._folder / "audit.json"),
                scratch_dir=self._folder,
            )
        )
