"""What a client tells the controllers of its topics; that they do not listen is no trouble."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from anabranch.client import TopicLayout
from anabranch.client._topics.traffic import TopicTraffic, TrafficReporter
from anabranch.core.entities.layout import SegmentLayout
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire.anabranch_pb2 import BaseCommand, ServerError
from anabranch.wire.errors import RefusedError
from anabranch.wire.server.server import Peer, Routes
from support.opening import Opening
from support.still_watch import layout_of
from support.wire import HOST, serving

TOPIC = "public/default/orders"


def layout(incarnation: int = 1, segments: int = 2, topic: str = TOPIC) -> TopicLayout:
    return layout_of(SegmentLayout.initial(segments, 4), topic=topic, incarnation=incarnation)


class Watch:
    """A watch of a topic, whose controller a test names."""

    def __init__(self, controller_url: str, topic: str = TOPIC) -> None:
        self.topic = topic
        self.controller_url = controller_url
        self.layout = layout(topic=topic)
        self.is_closed = False


class Controller:
    """Takes reports, and refuses them when a test wants it to."""

    def __init__(self) -> None:
        self.reports: list[pb.CommandScalableTrafficReport] = []
        self.refusal: ServerError | None = None
        self.refused = ""  # the topic whose reports are; "" for all
        self.interval_ms = 5_000
        self.connections = 0

    def open_session(self, peer: Peer) -> Routes:
        self.connections += 1

        async def report(command: BaseCommand) -> None:
            said = pb.CommandScalableTrafficReport()
            said.CopyFrom(command.scalableTrafficReport)
            self.reports.append(said)
            if self.refusal is not None and said.topic.endswith(self.refused):
                raise RefusedError(self.refusal, "not now")
            peer.send(
                pb.CommandScalableTrafficReportResponse(
                    request_id=said.request_id, interval_ms=self.interval_ms
                )
            )

        return {BaseCommand.SCALABLE_TRAFFIC_REPORT: report}

    def said(self) -> list[tuple[int, str, int, int, int]]:
        """Of the last report: segment, subscription, messages, bytes, told messages."""
        return [
            (s.segment_id, s.subscription, s.messages, s.bytes, s.told_messages)
            for s in self.reports[-1].segments
        ]


class Stage:
    """A reporter on a clock of the test's, a watch, and the topic's traffic."""

    def __init__(self, url: str, controller: Controller | None = None) -> None:
        self.controller = controller or Controller()
        self.now = 100.0
        self.reporter = TrafficReporter(lambda: self.now)
        self.watch = Watch(url)
        self.traffic = self.reporter.topic(self.watch)

    async def later(self, seconds: float) -> None:
        self.now += seconds
        await self.reporter.report_due()


@asynccontextmanager
async def staged() -> AsyncIterator[Stage]:
    controller = Controller()
    async with serving(controller.open_session) as server:
        stage = Stage(f"pulsar://{HOST}:{server.port}", controller)
        try:
            yield stage
        finally:
            await stage.reporter.close()


@pytest.fixture
def stage() -> Opening:
    return Opening(staged)


async def test_a_report_has_what_changed_and_says_what_was_told_before(stage: Stage) -> None:
    stage.traffic.wrote(0, 10, 1_000)
    stage.traffic.read("billing", 1, 5, 500)
    await stage.later(1.0)
    assert stage.controller.said() == [(0, "", 10, 1_000, 0), (1, "billing", 5, 500, 0)]
    stage.traffic.wrote(0, 1, 100)
    await stage.later(5.0)
    assert stage.controller.said() == [(0, "", 11, 1_100, 10)]
    assert stage.controller.reports[-1].since_ms == 5_000
    assert len({each.client_id for each in stage.controller.reports}) == 1
    assert stage.controller.connections == 1


async def test_nothing_is_told_when_nothing_changed_or_it_is_not_time(stage: Stage) -> None:
    await stage.later(1.0)
    stage.traffic.wrote(0, 10, 1_000)
    await stage.later(1.0)
    assert stage.controller.reports == []
    await stage.later(60.0)
    assert len(stage.controller.reports) == 1
    stage.traffic.wrote(0, 10, 1_000)
    await stage.later(4.9)  # the controller wants one every 5 s
    assert len(stage.controller.reports) == 1


async def test_what_a_controller_refused_for_now_is_told_to_the_next_one(stage: Stage) -> None:
    stage.controller.refusal = ServerError.ServiceNotReady
    stage.traffic.wrote(0, 10, 1_000)
    await stage.later(1.0)
    stage.controller.refusal = None
    stage.traffic.wrote(0, 5, 500)
    await stage.later(10.0)
    assert stage.controller.said() == [(0, "", 15, 1_500, 0)]


async def test_a_topic_that_is_refused_does_not_keep_others_from_being_told(stage: Stage) -> None:
    stage.controller.refusal, stage.controller.refused = ServerError.TopicNotFound, TOPIC
    other = stage.reporter.topic(Watch(stage.watch.controller_url, "public/default/returns"))
    stage.traffic.wrote(0, 10, 1_000)
    other.wrote(0, 20, 2_000)
    await stage.later(1.0)
    assert [each.topic for each in stage.controller.reports] == [
        f"topic://{TOPIC}",
        "topic://public/default/returns",
    ]
    assert other.news() == []


async def test_a_closed_topic_that_is_refused_is_reported_no_more(stage: Stage) -> None:
    stage.controller.refusal = ServerError.TopicNotFound
    stage.traffic.wrote(0, 10, 1_000)
    stage.watch.is_closed = True
    for _ in range(3):
        await stage.later(20.0)
    assert len(stage.controller.reports) == 1


async def test_a_client_without_topics_rests() -> None:
    now, looks, again = 100.0, 0, asyncio.Event()

    def look() -> float:
        nonlocal looks
        looks += 1
        if looks > 2:  # for the topic, and for what is due
            again.set()
        return now

    reporter = TrafficReporter(look)
    watch = Watch("pulsar://127.0.0.1:1")
    watch.is_closed = True
    reporter.topic(watch)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(again.wait(), 0.4)
    await reporter.close()


@pytest.mark.parametrize("url", ["", "pulsar://127.0.0.1:1", "nonsense"])
async def test_a_controller_that_is_not_there_is_no_trouble(url: str) -> None:
    stage = Stage(url)
    stage.traffic.wrote(0, 10, 1_000)
    await stage.later(20.0)
    stage.traffic.wrote(0, 10, 1_000)
    await stage.later(20.0)
    await stage.reporter.close()


async def test_reports_go_to_the_controller_that_an_open_watch_knows(stage: Stage) -> None:
    url, stage.watch.controller_url = stage.watch.controller_url, "pulsar://127.0.0.1:1"
    stage.watch.is_closed = True
    assert stage.reporter.topic(Watch(url)) is stage.traffic
    stage.traffic.wrote(0, 10, 1_000)
    await stage.later(1.0)
    assert len(stage.controller.reports) == 1


def test_a_topic_that_was_made_again_is_counted_anew_and_pruned_segments_are_forgotten() -> None:
    traffic = TopicTraffic()
    traffic.follow(layout(1))
    traffic.wrote(0, 10, 1_000)
    traffic.wrote(7, 10, 1_000)  # pruned, and not told yet
    traffic.follow(layout(1))
    news = traffic.news()
    assert sorted(each.segment_id for each in news) == [0, 7]
    traffic.told(news, 1.0)
    traffic.follow(layout(1))
    traffic.wrote(7, 1, 1)
    assert [(each.segment_id, each.messages) for each in traffic.news()] == [(7, 1)]
    traffic.follow(layout(2))
    assert traffic.news() == []
