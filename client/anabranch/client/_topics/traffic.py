"""Counts a client's writes and reads, and reports them to the controllers of its topics.

Kafka tells a controller the number of messages, but not their size or their readers, so the SDK
does. It is a help and no more: a controller that is out of reach does not trouble the application.
Counting costs nothing per message, because it is done once for each batch.
"""

from __future__ import annotations

import asyncio
import bisect
import contextlib
import itertools
import secrets
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

import msgspec

from anabranch.client._errors import ClientError
from anabranch.client._topics.layout import TopicLayout
from anabranch.client._topics.nodes import Connect, NodeConnection, parse_url
from anabranch.core.errors import InvalidInputError
from anabranch.core.names import full_name
from anabranch.wire import clock
from anabranch.wire.anabranch_pb2 import (
    BaseCommand,
    CommandScalableTrafficReport,
    SegmentTraffic,
)
from anabranch.wire.client import connect
from anabranch.wire.entries import LISTS
from anabranch.wire.errors import RefusedError, WireError
from anabranch.wire.logging import get_logger

_FIRST_S: Final = 1.0  # the first report comes so soon after the first use of a topic
_INTERVAL_S: Final = 10.0  # until a controller has named another one
_INTERVAL_S_MIN: Final = 0.1
_INTERVAL_S_MAX: Final = 600.0
_CONNECT_S_MAX: Final = 3.0
_ANSWER_S_MAX: Final = 5.0
_LOOKS_PER_S: Final = 5_000  # at topics
_REPORT: Final = LISTS[BaseCommand.SCALABLE_TRAFFIC_REPORT]["segments"]

_logger = get_logger(__name__)

_Key = tuple[str, int]  # subscription, "" for what is written, and segment


class _Counter(msgspec.Struct):
    """Counts of one segment. The `told` fields are those of the last answered report."""

    messages: int = 0
    size_bytes: int = 0
    told_messages: int = 0
    told_bytes: int = 0


class TopicTraffic:
    """The writes and reads of one client in one topic. Use it on one event loop."""

    def __init__(self, now: float = 0.0) -> None:
        self.incarnation = 0
        self.told_at = now
        self._counters: dict[_Key, _Counter] = {}

    def wrote(self, segment_id: int, messages: int, size_bytes: int) -> None:
        """Counts messages that Kafka has stored, and the bytes of their values."""
        self._add(("", segment_id), messages, size_bytes)

    def read(self, subscription: str, segment_id: int, messages: int, size_bytes: int) -> None:
        """Counts messages that a consumer of the subscription was given."""
        self._add((subscription, segment_id), messages, size_bytes)

    def shared_out(
        self, subscription: str, parts: Mapping[int, int], messages: int, size_bytes: int
    ) -> None:
        """Counts messages that a consumer took together. `parts` has the share of each segment."""
        total = sum(parts.values())
        for segment_id, part in parts.items():
            if part:
                count, size = messages * part // total, size_bytes * part // total
                self.read(subscription, segment_id, count, size)

    def _add(self, key: _Key, messages: int, size_bytes: int) -> None:
        counter = self._counters.get(key)
        if counter is None:
            counter = self._counters[key] = _Counter()
        counter.messages += messages
        counter.size_bytes += size_bytes

    def follow(self, layout: TopicLayout) -> None:
        """Forgets segments that have left the layout, once they are reported."""
        if layout.incarnation != self.incarnation:
            self.incarnation = layout.incarnation
            self._counters.clear()
        known = {part.segment_id for part in layout.children} | layout.segments.keys()
        for key, each in list(self._counters.items()):
            if key[1] not in known and each.messages == each.told_messages:
                del self._counters[key]

    def news(self) -> list[SegmentTraffic]:
        """Returns the changes since the last answered report, as many as one report may name."""
        news = [
            SegmentTraffic(
                segment_id=segment_id,
                subscription=subscription or None,
                messages=each.messages,
                bytes=each.size_bytes,
                told_messages=each.told_messages,
                told_bytes=each.told_bytes,
            )
            for (subscription, segment_id), each in self._counters.items()
            if each.messages != each.told_messages
        ][: _REPORT.entries]
        ends = list(itertools.accumulate(each.ByteSize() for each in news))
        return news[: bisect.bisect_right(ends, _REPORT.size)]

    def told(self, news: Iterable[SegmentTraffic], at: float) -> None:
        """Notes that a report was answered. `at` is the time at which it was sent."""
        self.told_at = at
        for each in news:
            counter = self._counters.get((each.subscription, each.segment_id))
            if counter is not None:
                counter.told_messages, counter.told_bytes = each.messages, each.bytes


class Watch(Protocol):
    """The part of a `LayoutWatch` that reports need."""

    topic: str
    controller_url: str

    @property
    def layout(self) -> TopicLayout: ...
    @property
    def is_closed(self) -> bool: ...


class _Topic:
    """A topic that the client uses, with the watches of it."""

    def __init__(self, now: float) -> None:
        self.traffic = TopicTraffic(now)
        self.watches: list[Watch] = []
        self.due_at = now + _FIRST_S

    @property
    def watch(self) -> Watch:
        """The watch that knows the newest layout. It keeps only the last one of closed watches."""
        if len(self.watches) == 1:
            return self.watches[0]
        self.watches = [w for w in self.watches if not w.is_closed] or self.watches[-1:]
        return max(self.watches, key=lambda w: w.layout.age)


class TrafficReporter:
    """Reports for one client, over one connection to each controller. Use it on one event loop."""

    def __init__(self, now: Callable[[], float] = clock.now, connecting: Connect = connect) -> None:
        self.client_id = secrets.randbits(63)
        self._now = now
        self._connect = connecting
        self._topics: dict[str, _Topic] = {}
        self._connections: dict[str, NodeConnection] = {}
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()

    def topic(self, watch: Watch) -> TopicTraffic:
        """Returns the counters for the topic of this watch, which already knows a layout."""
        known = self._topics.get(watch.topic)
        if known is None:
            known = self._topics[watch.topic] = _Topic(self._now())
            known.traffic.follow(watch.layout)
            self._wake.set()
        known.watches.append(watch)
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="traffic")
        return known.traffic

    async def close(self) -> None:
        """Ends the reports."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        for connection in self._connections.values():
            connection.close("the client was closed")
        self._connections.clear()

    async def _run(self) -> None:
        while True:
            try:
                await self.report_due()
            except Exception as error:  # noqa: BLE001 - reports must never end an application
                _logger.error("traffic.fault", why=repr(error))
            self._wake.clear()
            next_at = min((each.due_at for each in self._topics.values()), default=None)
            wait_s = None if next_at is None else max(_INTERVAL_S_MIN, next_at - self._now())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._wake.wait()
            # A look costs by all topics, and thousands may begin or fall due one by one.
            await asyncio.sleep(len(self._topics) / _LOOKS_PER_S)

    async def report_due(self) -> None:
        """Reports to controllers whose time has come. It raises nothing if they fail."""
        now = self._now()
        due: dict[str, list[_Topic]] = {}
        wanted: set[str] = set()
        for name, topic in list(self._topics.items()):
            watch = topic.watch
            url = watch.controller_url
            wanted.add(url)
            if watch.is_closed and (not url or not topic.traffic.news()):
                del self._topics[name]
            elif topic.due_at <= now:
                topic.due_at = now + _INTERVAL_S
                if url:
                    due.setdefault(url, []).append(topic)
        await asyncio.gather(*(self._report_all(*each) for each in due.items()))
        for url in [url for url in self._connections if url not in wanted]:
            self._connections.pop(url).close("no topic of the client is controlled there")

    async def _report_all(self, url: str, topics: list[_Topic]) -> None:
        """Reports to one controller, one topic after another, even if it refuses some of them."""
        try:
            for topic in topics:
                try:
                    await self._report(url, topic)
                except RefusedError as error:
                    self._refused(url, topic, error.reason)
        except (WireError, ClientError, InvalidInputError) as error:
            _logger.debug("traffic.unheard", node=url, why=str(error))
            connection = self._connections.pop(url, None)
            if connection is not None:
                connection.abort("a report was not answered")

    def _refused(self, url: str, topic: _Topic, why: str) -> None:
        """Ends the reports of a closed topic, which does not learn of the next controller."""
        watch = topic.watch
        _logger.debug("traffic.refused", node=url, topic=watch.topic, why=why)
        if watch.is_closed and self._topics.get(watch.topic) is topic:
            del self._topics[watch.topic]

    async def _report(self, url: str, topic: _Topic) -> None:
        traffic, layout, now = topic.traffic, topic.watch.layout, self._now()
        traffic.follow(layout)
        news = traffic.news()
        if not news:
            traffic.told_at = now
            return
        connection = await self._connection(url)
        answer = await connection.request(
            CommandScalableTrafficReport(
                topic=full_name(layout.topic),
                incarnation=traffic.incarnation,
                client_id=self.client_id,
                since_ms=round(1000 * (now - traffic.told_at)),
                segments=news,
            ),
            _ANSWER_S_MAX,
        )
        traffic.told(news, now)
        wanted_s = answer.scalableTrafficReportResponse.interval_ms / 1000
        topic.due_at = now + min(max(wanted_s, _INTERVAL_S_MIN), _INTERVAL_S_MAX)

    async def _connection(self, url: str) -> NodeConnection:
        known = self._connections.get(url)
        if known is None or not known.is_open:
            address = parse_url(url)[0]
            known = await self._connect(
                address.host, address.port, on_push=_ignore, timeout_s=_CONNECT_S_MAX
            )
            self._connections[url] = known
        return known


def _ignore(_command: BaseCommand) -> None:
    """Ignores pushed commands, because the connection asks for none."""
