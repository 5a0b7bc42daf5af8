"""A node: the runtime in the event loop, threads that wait for Kafka, start and stop.

The state has one owner, the event loop (`runtime`). Six threads wait for Kafka, hand over, and do
nothing else. They read the log, read heartbeats and learn of their acknowledgement, and learn the
results of appends. Three read and write loads of segments, loads of brokers and top bundles. An
error that lasts ends the node and names the remedy. If Kafka is unreachable, it waits in safe mode.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from anabranch.broker.balance.board import LoadBoard
from anabranch.broker.errors import StartError
from anabranch.broker.load.reporter import SegmentLoadReporter, build_reporter
from anabranch.broker.logging import get_logger
from anabranch.broker.metrics.registry import Metrics
from anabranch.broker.node.balancing import build_balance, build_counts, resource_meter
from anabranch.broker.node.feeds import Feed
from anabranch.broker.node.metrics import measure_node
from anabranch.broker.node.startup import (
    check_not_in_use,
    connect,
    prepare_topics,
    segment_settings,
)
from anabranch.broker.node.view_catch_up import (
    CatchUp,
)
from anabranch.broker.operations import Operations
from anabranch.broker.runtime import Ended, Runtime
from anabranch.broker.security.acls import acl_reconciler
from anabranch.broker.settings import Settings
from anabranch.broker.snapshots.writer import Snapshots
from anabranch.broker.topics.build import TopicParts
from anabranch.broker.topics.controllers.worker import KafkaSegments
from anabranch.broker.topics.subscriptions.queue_positions import KafkaPositions
from anabranch.channel.errors import KafkaUnreachableError, LogTrimmedError
from anabranch.channel.heartbeats import KafkaHeartbeats
from anabranch.channel.kafka.acls import KafkaAcls
from anabranch.channel.kafka.topics import Topics
from anabranch.channel.load.balance import BrokerLoadChange, KafkaBrokerLoads, KafkaTopBundles
from anabranch.channel.load.loads import KafkaLoads, LoadTable
from anabranch.channel.load.probe import LoadProbe
from anabranch.channel.load.soft_state import SoftStateTopic
from anabranch.channel.log.entries import Entry, append_records
from anabranch.channel.log.kafka_log import KafkaLogEnd, KafkaLogReader, KafkaLogWriter
from anabranch.channel.segments.admin import lived_by
from anabranch.channel.snapshots.compactor import Compactor
from anabranch.core.adoption.survey import TopicSurvey
from anabranch.core.errors import AnabranchError
from anabranch.projections.view import View
from anabranch.wire import clock
from anabranch.wire.kafka.survey import survey

_BATCH_MAX: Final = 256  # entries folded without a pause for requests
_POLL_S: Final = 0.2
_JOIN_S_MAX: Final = 10.0
_SERVING_S_MAX: Final = 30.0
_LOADS_S_MAX: Final = 3.0
_LOOK_S: Final = 0.005
_BEATS_AWAITED: Final = 3
_TICKS_PER_BEAT: Final = 5
_REBUILD_PAUSE_S: Final = 1.0

_C = TypeVar("_C")


class Node:
    """One broker. Start it once, wait for its end or stop it, then close it; in one event loop."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.runtime: Runtime
        self.operations: Operations
        self._log = get_logger(broker=settings.broker_id)
        self._feeds: list[Feed[Any]] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._closers: list[Callable[[], None]] = []  # in threads, in reverse order
        self._view: View | None = None
        self._reader: KafkaLogReader | None = None
        self._wal: Feed[Entry] | None = None
        self._reporter: SegmentLoadReporter | None = None
        self._first_loads: asyncio.Future[list[BrokerLoadChange]] | None = None

    # --- start --------------------------------------------------------------------------

    async def start(self) -> None:
        """Returns once the node serves. Raises AnabranchError with what to do about it."""
        try:
            await self._start()
        except BaseException:
            await self.close()
            raise

    async def _start(self) -> None:
        settings = self.settings
        self._connection = connect(settings)
        self._topics: Topics = await asyncio.to_thread(prepare_topics, settings, self._connection)
        heartbeats = await asyncio.to_thread(KafkaHeartbeats, self._connection, self._topics)
        watched_since = time.monotonic()
        self._closers.append(heartbeats.close)
        # It connects while the view catches up.
        wal = self._topics.wal
        writer = await asyncio.to_thread(
            KafkaLogWriter, self._connection, wal, report_success=False
        )
        self._closers.append(writer.close)
        passed_over = settings.passed_over
        catch_up = CatchUp(
            self._connection, self._topics, settings.view_dir, passed_over=passed_over
        )
        view, reader = await asyncio.to_thread(catch_up.run)
        self._view, self._reader = view, reader
        first_loads = self._first_loads = self._open_loads()
        core = settings.node_settings()
        heard = await asyncio.to_thread(
            check_not_in_use, core.broker, view, heartbeats, core.lease_s, watched_since
        )

        log_end = await asyncio.to_thread(KafkaLogEnd, self._connection, wal)
        self._closers.append(log_end.close)
        self.runtime = Runtime(
            core,
            view,
            partial(append_records, writer),
            heartbeats.publish,
            self.metrics,
            log_end.ask,
            waiting_max=settings.max_concurrent_lookup_request,
            verbose=settings.balance.debug_mode_enabled,
        )
        acls = acl_reconciler(
            self.runtime, settings, lambda: KafkaAcls(self._connection, self._topics.wal)
        )
        self.operations = Operations(self.runtime, settings, self._topic_parts())
        self.runtime.worries.append(self._of_snapshot)
        self.runtime.heard(heard)
        self._snapshots = Snapshots(
            self.runtime,
            self._the_view,
            lambda: Compactor(self._connection, self._topics),
            self.operations.configuration.current,
            self.metrics,
        )
        measure_node(self.runtime, self.operations, self.metrics)
        self._counts = build_counts(self.operations, self.runtime)
        board = self.operations.balance.board
        self._follow(reader)
        self._listen(heartbeats, writer)
        self._read("loads", self._loads, self._table.take)
        self._read("top bundles", self._top_bundles, board.take_top)
        self.runtime.joined()
        self._tasks.append(asyncio.create_task(self._ticks(), name="ticks"))
        await self._serving()
        await self._acquainted()
        await self._informed(board, first_loads)
        self._begin("snapshots", self._snapshots.run)
        self._measure(board)
        if acls is not None:
            self._begin("acls", acls.run)
        self._log.info("node.serving", session=self.runtime.core.session)

    def _topic_parts(self) -> TopicParts:
        table, loads = self._table, self._loads
        segments = segment_settings(self.settings)
        return TopicParts(
            lambda: KafkaSegments(self._connection, segments),
            lambda: KafkaPositions(self._connection),
            lambda topic, incarnation: (
                table.segments(topic, incarnation) if loads.is_whole else None
            ),
            self._survey,
            lived_by(segments),
        )

    def _survey(self, kafka_topic: str, seconds: float) -> TopicSurvey:
        kafka, at_ms = self._connection, round(1_000 * time.time())
        return survey(kafka_topic, kafka.bootstrap_servers, kafka.security, seconds, at_ms)

    def _listen(self, heartbeats: KafkaHeartbeats, writer: KafkaLogWriter) -> None:
        beats = Feed(
            "heartbeats", lambda: heartbeats.poll(_POLL_S), self.runtime.heard, self._failed
        )
        appends: Feed[None] = Feed("appends", lambda: _served(writer), _nothing, self._failed)
        self._feeds += [beats, appends]
        beats.start()
        appends.start()

    async def _serving(self) -> None:
        """Waits for this node's own session to be read back."""
        deadline = clock.now() + _SERVING_S_MAX
        while not self.runtime.has_lease:
            if self.runtime.ended.done():
                raise StartError(self.runtime.ended.result().reason)
            if clock.now() > deadline:
                raise StartError(
                    f"the log takes no records: {self._topics.wal} at "
                    f"{self.settings.bootstrap_servers} did not accept this node's session within "
                    f"{_SERVING_S_MAX:.0f} s; see whether enough replicas are in sync"
                )
            await asyncio.sleep(_LOOK_S)

    async def _acquainted(self) -> None:
        """Waits until the others were heard and a leader is known, but not for those in trouble.

        Else the first look-ups here would assign everything to this node.
        """
        core = self.runtime.core
        deadline = clock.now() + _BEATS_AWAITED * core.settings.heartbeat_s
        while clock.now() < deadline and not self.runtime.ended.done():
            open_sessions = [b for b, s in self.runtime.view.sessions() if s.open]
            strangers = [b for b in open_sessions if core.liveness.beat_of(b) is None]
            if not strangers and self.operations.leader():
                return
            await asyncio.sleep(_LOOK_S)

    async def _informed(
        self, board: LoadBoard, first: asyncio.Future[list[BrokerLoadChange]]
    ) -> None:
        """Waits until the brokers' loads were read once, but not for a Kafka that is slow.

        Else the first assignments here would be made by no load at all.
        """
        board.take(await asyncio.shield(first))
        if not self._broker_loads.is_whole:
            why = (
                f"Kafka did not give all of {self._topics.broker_load} within {_LOADS_S_MAX:.0f} s"
            )
            self._log.warning("balance.loads_not_read", why=why, known=len(board))
        self._read("broker loads", self._broker_loads, board.take)

    # --- running ------------------------------------------------------------------------

    async def wait_ended(self) -> Ended:
        """Why the node ended, once it has."""
        return await asyncio.shield(self.runtime.ended)

    async def stop(self) -> Ended:
        """Gives every bundle away, then ends; gives up after brokerShutdownTimeoutMs."""
        self.runtime.drain()
        timeout_ms = self.operations.configuration.current.now.broker_shutdown_timeout_ms
        timeout_s = timeout_ms / 1000
        try:
            return await asyncio.wait_for(asyncio.shield(self.runtime.ended), timeout_s)
        except TimeoutError:
            left = len(self.operations.owned(self.settings.broker_id))
            self.runtime.fail(
                f"{left} bundles were not handed over within brokerShutdownTimeoutMs, "
                f"{timeout_ms}; others take them when they notice"
            )
            return self.runtime.ended.result()

    async def close(self) -> None:
        """Ends all threads and clients, at once. The node is of no more use."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._first_loads is not None:  # its thread has the consumer until then
            await asyncio.gather(self._first_loads, return_exceptions=True)
        if self._reporter is not None:
            await self._reporter.close()
        if self._wal is not None:  # else there are no operations yet
            self.runtime.proposals.log_end.stop()
            self.operations.topic_list_limiter.close()
            await self.operations.topics.stop()
        feeds = [*self._feeds, *([self._wal] if self._wal else [])]
        for feed in feeds:
            feed.stop()
        for feed in feeds:
            await asyncio.to_thread(feed.join, _JOIN_S_MAX)
        if self._reader is not None:
            await asyncio.to_thread(self._reader.close)
        for closer in reversed(self._closers):
            await asyncio.to_thread(closer)
        if self._view is not None:
            self._view.close()
        self._tasks, self._feeds, self._closers = [], [], []
        self._view = self._reader = self._wal = self._reporter = self._first_loads = None

    async def _ticks(self) -> None:
        period_s = self.runtime.core.settings.heartbeat_s / _TICKS_PER_BEAT
        while not self.runtime.ended.done():
            try:
                self._connection.refusals.check()
                self.runtime.tick()
            except Exception as error:  # noqa: BLE001 - a fault ends the node
                self._failed(error)
            await asyncio.sleep(period_s)

    def _begin(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        """Starts a task that goes on until the node stops."""
        self._tasks.append(asyncio.create_task(self._guarded(run), name=name))

    async def _guarded(self, run: Callable[[], Awaitable[None]]) -> None:
        try:
            await run()
        except Exception as error:  # noqa: BLE001 - a fault ends the node
            self._failed(error)

    def _follow(self, reader: KafkaLogReader) -> None:
        self._reader = reader
        self._wal = Feed(
            "log", lambda: reader.poll(_BATCH_MAX, _POLL_S), self._received, self._failed
        )
        self._wal.start()

    def _read(
        self,
        name: str,
        topic: SoftStateTopic[Any, _C],
        take: Callable[[Sequence[_C]], None],
    ) -> None:
        """Keeps up with a topic between the nodes."""
        feed: Feed[_C] = Feed(name, lambda: topic.poll(_POLL_S), take, self._failed)
        self._feeds.append(feed)
        feed.start()

    def _open_loads(self) -> asyncio.Future[list[BrokerLoadChange]]:
        """Opens the nodes' topics of soft state, and reads the brokers' loads at once."""
        self._table = LoadTable()
        self._loads = KafkaLoads(self._connection, self._topics)
        self._broker_loads = KafkaBrokerLoads(self._connection, self._topics)
        self._top_bundles = KafkaTopBundles(self._connection, self._topics)
        for each in (self._loads, self._broker_loads, self._top_bundles):
            self._closers.append(each.close)
        first = asyncio.to_thread(self._broker_loads.read_whole, _LOADS_S_MAX)
        return asyncio.ensure_future(first)

    def _measure(self, board: LoadBoard) -> None:
        """Measures what this node is to measure, and tells the others."""
        operations = self.operations
        self._reporter = build_reporter(
            operations.topics.access.service,
            operations.traffic,
            self.settings,
            self._table,
            self._loads,
            lambda: LoadProbe(self._connection),
        )
        balance = build_balance(
            operations,
            board,
            self._counts,
            self._reporter,
            self._table,
            self._broker_loads,
            self._top_bundles,
            resource_meter(self.settings),
        )
        for name, run in (("load", self._reporter.run), ("balance", balance.run)):
            self._begin(name, run)

    def _received(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        """Folds as much as the loop may do without a pause; returns the rest."""
        self.runtime.received(entries)
        next_offset = self._the_view().next_offset
        if entries[-1].offset < next_offset or self.runtime.ended.done():
            return ()
        return [entry for entry in entries if entry.offset >= next_offset]

    def _of_snapshot(self) -> list[str]:
        strays = self._view.strays if self._view is not None else ()
        return [
            f"{self._topics.snapshot} holds a record that is no state, and was left out: {stray}; "
            "a tombstone under its key takes it away"
            for stray in strays
        ]

    def _the_view(self) -> View:
        if self._view is None:
            raise StartError("the node is closed")
        return self._view

    # --- trouble ------------------------------------------------------------------------

    def _failed(self, error: Exception) -> None:
        if isinstance(error, LogTrimmedError):
            self._log.warning("view.too_old", why=str(error))
            self._begin("rebuild", self._rebuild)
        elif isinstance(error, AnabranchError):
            self.runtime.fail(str(error))
        else:
            self._log.error("node.fault", exc_info=error)
            self.runtime.fail(
                f"a fault, {type(error).__name__}: {error}; the log lines above say where. "
                "Acknowledged changes are safe in the log; please report this"
            )

    async def _rebuild(self) -> None:
        """The log was trimmed past this node's view: build another while the old one answers."""
        old_reader, old_wal = self._reader, self._wal
        if old_wal is not None:
            await asyncio.to_thread(old_wal.join, _JOIN_S_MAX)
        if old_reader is not None:
            await asyncio.to_thread(old_reader.close)
        self._reader = None
        path = self.settings.view_dir
        fresh = path.with_name(f"{path.name}.next")
        shutil.rmtree(fresh, ignore_errors=True)
        catch_up = CatchUp(
            self._connection,
            self._topics,
            fresh,
            self._the_view().log_id,
            passed_over=self.settings.passed_over,
        )
        while True:
            try:
                view, reader = await asyncio.to_thread(catch_up.run)
            except KafkaUnreachableError as error:
                self._log.warning("view.waits", why=str(error))
                await asyncio.sleep(_REBUILD_PAUSE_S)
            else:
                break
        view.close()
        async with self._snapshots.writing:
            # No await from here on, because no task may meet a closed view.
            self._the_view().close()
            shutil.rmtree(path)
            fresh.rename(path)
            self._view = View.open(path)
            self.runtime.replaced(self._view)
        self._follow(reader)


def _served(writer: KafkaLogWriter) -> Sequence[None]:
    writer.serve(_POLL_S)
    return ()


def _nothing(_: Sequence[None]) -> None:
    """Appends are answered by their own callbacks."""
