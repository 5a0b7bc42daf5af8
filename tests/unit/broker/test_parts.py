"""The parts of a node that need no other part."""

import asyncio
import contextlib
import io
import os
import threading
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path

import pytest
import structlog

from anabranch.broker.digest_watch import DigestWatch
from anabranch.broker.errors import StartError
from anabranch.broker.logging import configure_logging, get_logger
from anabranch.broker.metrics.registry import Metrics
from anabranch.broker.node.feeds import Feed
from anabranch.broker.node.view_catch_up import (
    open_view,
)
from anabranch.broker.settings import load_settings
from anabranch.core.bundles.propose import Actor, move
from anabranch.core.entities.unit import Move, Unit, UnitState
from anabranch.core.fold.evolve import UNREADABLE
from anabranch.core.log.outcome import Folded, Outcome
from anabranch.core.log.records import Cause
from anabranch.core.log.verdicts import Verdict
from anabranch.core.sessions.lease import Heartbeat
from support.waiting import WAIT_S

UNIT = "public/default/0x00000000_0x40000000"


# --- the feeds ------------------------------------------------------------------------------


def unexpected(error: Exception) -> None:
    pytest.fail(f"the feed failed: {error}")


async def test_a_feed_delivers_everything_in_order_and_never_runs_far_ahead() -> None:
    polled = 0
    got: list[int] = []
    ahead: list[int] = []
    done = asyncio.Event()

    def poll() -> Sequence[int]:
        nonlocal polled
        polled += 1
        return [polled]

    def deliver(items: Sequence[int]) -> None:
        ahead.append(polled - items[0])
        got.extend(items)
        if len(got) == 500:
            done.set()

    feed = Feed("test", poll, deliver, unexpected)
    feed.start()
    await asyncio.wait_for(done.wait(), WAIT_S)
    feed.stop()
    assert await asyncio.to_thread(feed.join, WAIT_S)
    assert got[:500] == list(range(1, 501))
    assert max(ahead) <= 5


async def test_what_is_not_taken_comes_again_first_and_others_have_their_turn() -> None:
    numbers = count()
    got: list[int] = []
    turns: list[int] = []  # how many items had been taken at each turn of somebody else
    done = asyncio.Event()

    def poll() -> Sequence[int]:
        return [next(numbers) for _ in range(3)]

    def deliver(items: Sequence[int]) -> Sequence[int]:
        asyncio.get_running_loop().call_soon(lambda: turns.append(len(got)))
        got.append(items[0])
        if len(got) == 300:
            done.set()
        return items[1:]

    feed = Feed("test", poll, deliver, unexpected)
    feed.start()
    await asyncio.wait_for(done.wait(), WAIT_S)
    feed.stop()
    assert await asyncio.to_thread(feed.join, WAIT_S)
    assert got[:300] == list(range(300))
    # Between the parts of one batch; the next batch may stand in the loop's queue already.
    assert {taken for taken in range(1, 300) if taken % 3} <= set(turns)


@pytest.mark.parametrize("where", ["poll", "deliver"])
async def test_a_feed_that_fails_says_so_once_and_ends(where: str) -> None:
    failures: list[Exception] = []
    failed = asyncio.Event()

    def poll() -> Sequence[int]:
        if where == "poll":
            raise OSError("gone")
        return [1]

    def deliver(items: Sequence[int]) -> None:
        raise OSError("gone")

    def told(error: Exception) -> None:
        failures.append(error)
        failed.set()

    feed = Feed("test", poll, deliver, told)
    feed.start()
    await asyncio.wait_for(failed.wait(), WAIT_S)
    assert await asyncio.to_thread(feed.join, WAIT_S)
    await asyncio.sleep(0)
    assert [str(error) for error in failures] == ["gone"]


async def test_a_feed_that_is_stopped_delivers_nothing_more() -> None:
    release = threading.Event()
    got: list[int] = []

    def poll() -> Sequence[int]:
        release.wait(WAIT_S)
        return [1]

    feed = Feed("test", poll, got.extend, unexpected)
    feed.start()
    feed.stop()
    release.set()
    assert await asyncio.to_thread(feed.join, WAIT_S)
    await asyncio.sleep(0)
    assert got == []


# --- the digest alarm -----------------------------------------------------------------------


def beat(broker: str, next_offset: int, digest: str) -> Heartbeat:
    return Heartbeat(broker, 1, 1, 0.0, "serving", next_offset, digest, -1, "", "", "")


MEMBERS = ("a:1", "b:1", "c:1")


def digest_watch() -> DigestWatch:
    return DigestWatch("a:1", MEMBERS.__contains__)


def test_two_digests_at_one_offset_raise_the_alarm_whoever_reports_first() -> None:
    watch = digest_watch()
    assert watch.own(5, "00") == []
    assert watch.heard(beat("b:1", 5, "00")) == []
    (found,) = watch.heard(beat("c:1", 5, "01"))
    assert (found.next_offset, found.broker, found.other) == (5, "c:1", "a:1")
    (found,) = watch.heard(beat("b:1", 9, "02")) or watch.heard(beat("c:1", 9, "01"))
    assert (found.broker, found.other) == ("c:1", "b:1")
    (found,) = watch.own(9, "01")
    assert (found.broker, found.digest, found.other_digest) == ("b:1", "02", "01")


def test_an_alarm_is_raised_once_for_each_time_that_a_broker_begins_to_differ() -> None:
    watch = digest_watch()
    watch.own(5, "00")
    wrong, right = beat("b:1", 5, "01"), beat("b:1", 5, "00")
    found = [len(watch.heard(each)) for each in (wrong, wrong, right, right, wrong)]
    assert found == [1, 0, 0, 0, 1]


def test_digests_at_different_offsets_are_not_compared_and_old_ones_are_forgotten() -> None:
    watch = digest_watch()
    for offset in range(10_000):
        assert watch.own(offset, f"{offset:x}") == []
    assert watch.heard(beat("b:1", 0, "other")) == []
    assert watch.heard(beat("b:1", 9_999, "other")) != []


def test_one_wrong_heartbeat_stops_nothing_for_longer_than_until_the_next() -> None:
    watch = digest_watch()
    watch.own(5, "00")
    watch.heard(beat("b:1", 5, "01"))
    assert watch.is_outvoted()  # of two, nobody can tell who is right
    concerns = list(watch.concerns())
    assert "offset 5" in concerns[0]
    assert "no snapshots" in concerns[1]
    watch.heard(beat("b:1", 5, "00"))
    assert not watch.is_outvoted()
    assert list(watch.concerns()) == []


def test_a_broker_that_most_agree_with_goes_on_and_says_who_differs() -> None:
    watch = digest_watch()
    watch.heard(beat("c:1", 7, "01"))
    watch.heard(beat("b:1", 7, "00"))
    watch.own(7, "00")
    assert not watch.is_outvoted()
    (concern,) = watch.concerns()
    assert "c:1 differ" in concern
    watch.heard(beat("b:1", 7, "01"))
    assert watch.is_outvoted()


def test_however_many_strangers_speak_what_a_member_says_is_heard() -> None:
    watch = digest_watch()
    watch.own(5, "00")
    for number in range(2_000):
        assert watch.heard(beat(f"x:{number}", 5, "01")) == []
    assert not watch.is_outvoted()
    assert list(watch.concerns()) == []
    assert len(watch.heard(beat("b:1", 5, "01"))) == 1
    assert watch.is_outvoted()


def test_however_many_have_left_what_a_member_says_is_heard() -> None:
    members: set[str] = set()
    watch = DigestWatch("a:1", members.__contains__)
    for number in range(2_000):
        members.add(f"b:{number}")
        watch.own(number, "00")
        assert len(watch.heard(beat(f"b:{number}", number, "01"))) == 1
        assert watch.is_outvoted()
        members.clear()


# --- log lines ------------------------------------------------------------------------------


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    yield io.StringIO()
    structlog.reset_defaults()


def test_log_lines_as_text_quote_what_would_be_ambiguous(lines: io.StringIO) -> None:
    configure_logging(load_settings(None, {}, {}), lines)
    get_logger().warning("log.append_failed", why='two "words"\nand a line', key="plain", none="")
    line = lines.getvalue()
    assert r'why="two \"words\"\nand a line" key=plain none=""' in line
    assert line.count("\n") == 1


def test_a_node_does_not_end_with_the_reader_of_its_log(lines: io.StringIO) -> None:
    read, write = os.pipe()
    os.close(read)
    unread = os.fdopen(write, "w")
    try:
        configure_logging(load_settings(None, {}, {}), unread)
        for number in range(3):
            get_logger().info("decision.own", offset=number)
    finally:
        with contextlib.suppress(BrokenPipeError):
            unread.close()


# --- metrics --------------------------------------------------------------------------------


def folded(what: Move, verdict: Verdict, state: UnitState, since_ms: int) -> Folded:
    unit = Unit(state, "a:1", "", 2, what, since_ms, 7, "p")
    record = move(Actor("a:1", 1), UNIT, unit, what, "p", Cause.OPERATOR)
    changes = ((UNIT, unit),) if verdict is Verdict.ACCEPTED else ()
    return Folded(7, since_ms, record, Outcome(verdict, changes))


def test_records_are_counted_by_kind_and_verdict() -> None:
    metrics = Metrics()
    metrics.folded(folded(Move.RELEASE, Verdict.ACCEPTED, UnitState.RELEASING, 1_000))
    metrics.folded(folded(Move.RELEASE, Verdict.STALE_VERSION, UnitState.RELEASING, 1_010))
    metrics.folded(Folded(8, 1_020, None, UNREADABLE))
    value = metrics.registry.get_sample_value
    name = "anabranch_log_records_total"
    assert value(name, {"kind": "release", "verdict": "accepted"}) == 1
    assert value(name, {"kind": "release", "verdict": "stale_version"}) == 1
    assert value("anabranch_unreadable_records_total") == 1


def test_a_hand_over_is_timed_by_the_log_from_release_to_the_next_owner() -> None:
    metrics = Metrics()
    metrics.folded(folded(Move.RELEASE, Verdict.ACCEPTED, UnitState.RELEASING, 1_000))
    metrics.folded(folded(Move.HAND_OVER, Verdict.ACCEPTED, UnitState.ASSIGNING, 1_100))
    metrics.folded(folded(Move.OWN, Verdict.ACCEPTED, UnitState.OWNED, 1_250))
    value = metrics.registry.get_sample_value
    assert value("anabranch_hand_over_seconds_count") == 1
    assert value("anabranch_hand_over_seconds_sum") == pytest.approx(0.25)


# --- what a node needs to start -------------------------------------------------------------


def test_a_data_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StartError, match="cannot be made"):
        open_view(tmp_path / "file" / "data" / "view")
