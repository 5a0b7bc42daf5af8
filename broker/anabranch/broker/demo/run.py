"""The demo from start to end: cluster, trace, scenario, archive, audit, figures."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from anabranch.broker.cli.children import HOST, NodeProcess, await_ready, stop_all
from anabranch.broker.cli.output import table
from anabranch.broker.demo.history import History
from anabranch.broker.demo.lookups import LookedUp, LookupClients
from anabranch.broker.demo.scenario import Crash, Scenario
from anabranch.broker.demo.trace import Event, load
from anabranch.channel.connection import KafkaConnection
from anabranch.channel.embedded import ports
from anabranch.channel.embedded.kafka import EmbeddedKafka
from anabranch.channel.topics import Topics
from anabranch.spark_replay.archive import ArchiveOptions, run_archive
from anabranch.spark_replay.audit import AuditOptions, run_audit

_NODES: Final = 3
_PREFIX: Final = "anabranch."
_PROGRESS_SECONDS: Final = 10.0
_WRONG_SHOWN: Final = 5


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
            clients, scenario = asyncio.run(self._drive(events))
            stop_all(self._nodes)
            self._say("all nodes have stopped; the log is read once more, look-ups are checked")
            history = History()
            history.read(KafkaConnection(self._kafka.bootstrap_servers), Topics(_PREFIX))
            wrong = history.wrong(clients.answered)
            audited = self._audit()
        finally:
            stop_all(self._nodes)
            self._kafka.stop()
        _say_figures(clients, scenario, history, wrong)
        click.echo(f"\nreport: {self._report}")
        click.echo(f"the whole demo took {time.monotonic() - self._began:.0f} s")
        return 1 if wrong or clients.failed else audited

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
            )
            for number in range(_NODES)
        ]
        for node in self._nodes:
            node.start()
        await_ready(self._nodes)
        for node in self._nodes:
            self._say(f"{node.name} serves at {node.url} (process {node.pid})")

    async def _drive(self, events: Sequence[Event]) -> tuple[LookupClients, Scenario]:
        clients = LookupClients(self._nodes)
        scenario = Scenario(self._nodes, events, self._say)
        try:
            await scenario.create()
            async with asyncio.TaskGroup() as group:
                progress = group.create_task(self._progress(clients, len(events)))
                looking = group.create_task(clients.run(events))
                await scenario.run(self._duration_s)
                await looking
                progress.cancel()
            lists = await scenario.bundle_lists()
            same = all(one == lists[0] for one in lists)
            self._say(
                f"the trace is over: {len(lists)} nodes list {len(lists[0])} bundles, "
                f"{'all the same' if same else 'and their lists DIFFER'}"
            )
        finally:
            await clients.close()
            await scenario.close()
        return clients, scenario

    async def _progress(self, clients: LookupClients, total: int) -> None:
        while True:
            await asyncio.sleep(_PROGRESS_SECONDS)
            self._say(
                f"look-ups: {len(clients.answered)} of {total} answered, "
                f"{len(clients.failed)} failed"
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


def _say_figures(
    clients: LookupClients, scenario: Scenario, history: History, wrong: Sequence[LookedUp]
) -> None:
    click.echo("\nhow long it took (by the log's clock, unless said otherwise)")
    rows = [
        _figure("hand-over of a bundle: release to next owner", history.hand_overs_ms),
        _figure("transfer: request until every node answers so (client)", scenario.agreed_ms),
        *(_fail_over(crash, history) for crash in scenario.crashes),
        _figure("look-up (client)", [one.answered_ms - one.sent_ms for one in clients.answered]),
    ]
    table(("WHAT", "COUNT", "P50 ms", "MAX ms"), rows)
    changes = ", ".join(f"{count} {kind}" for kind, count in scenario.done.items())
    retried = ", ".join(f"{count} x {why}" for why, count in sorted(clients.refused.items()))
    rejected = history.records - history.verdicts["ACCEPTED"]
    click.echo(f"\nchanges by request: {changes}; refused: {len(scenario.refused)}")
    for refusal in scenario.refused:
        click.echo(f"  refused: {refusal}")
    click.echo(f"log records: {history.records}, of which {rejected} were rejected")
    click.echo(
        f"look-ups: {len(clients.answered)} answered, {len(clients.failed)} failed, {len(wrong)} "
        f"wrong, {sum(one.stale for one in clients.answered)} marked stale; tried again at another "
        f"node: {retried or 'none'}"
    )
    for failure in clients.failed[:_WRONG_SHOWN]:
        click.echo(f"  failed: {failure}")
    for one in wrong[:_WRONG_SHOWN]:
        click.echo(f"  WRONG: {one.topic} is not with {one.broker} at {one.answered_ms:.0f}")


def _fail_over(crash: Crash, history: History) -> tuple[str, str, str, str]:
    waits = history.taken_over_ms(crash.broker, crash.at_ms)
    return _figure(f"fail-over: SIGKILL of {crash.what} to next owner", waits)


def _figure(what: str, values: Sequence[float]) -> tuple[str, str, str, str]:
    if not values:
        return what, "0", "-", "-"
    return what, str(len(values)), f"{statistics.median(values):.1f}", f"{max(values):.1f}"
