"""A message that ends its process is found, and nothing else is taken for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from anabranch import client as sdk
from anabranch.client._consumer.assignment import SegmentBucket
from anabranch.client._consumer.gaps import Done, Gaps, read, written
from anabranch.client._consumer.holding import Holding, Loss
from anabranch.client._consumer.lives import Lives
from support.aside import Aside
from support.lone_consumers import Filled, consuming
from support.memory_cluster import until
from support.there import there

ASIDE = "topic://public/default/orders-billing-DLQ"
PUT_ASIDE = sdk.Retry(then="dead_letter")
PLACE = ("k", 0)


class Owner:
    """A process that works on the bucket, each message until the test lets it end."""

    def __init__(self, consumer: sdk.StreamConsumer, plane: Filled, aside: Aside) -> None:
        self.consumer, self.plane, self.aside = consumer, plane, aside
        self.begun: list[int] = []
        self.suspects: list[int] = []  # that were committed when something began
        self.may_end = asyncio.Event()
        self.failure: Exception | None = None

    async def handle(self, message: sdk.Message, work: sdk.Work) -> None:
        self.begun.append(message.offset)
        if (suspect := self.told().suspect) is not None:
            self.suspects.append(suspect)
        await self.may_end.wait()
        if self.failure is not None:
            raise self.failure

    @property
    def committed(self) -> int:
        position = self.plane.committed.get(PLACE)
        return 0 if position is None else position.offset

    def told(self) -> Done:
        """What the next owner finds now."""
        position = self.plane.committed.get(PLACE)
        if position is None or not position.map:
            return Done([])
        return there(read(position.map, "g", PLACE, position.offset, 100))


@asynccontextmanager
async def owner(before: Done, keys: str = "abc") -> AsyncIterator[Owner]:
    """The next owner, which ends without a word."""
    aside = Aside()
    async with consuming(100, aside.maker(), ASIDE, settle_timeout_s=60.0) as (consumer, plane):
        (holding,) = consumer._core.holdings.values()
        holding.done_above = 0, before
        plane.read(range(len(keys)), [key.encode() for key in keys])
        made = Owner(consumer, plane, aside)
        run = asyncio.create_task(consumer.run(made.handle, retry=PUT_ASIDE))
        try:
            yield made
        finally:
            run.cancel()
            await asyncio.gather(run, return_exceptions=True)


async def test_the_message_with_which_three_processes_ended_is_put_aside_by_the_fourth() -> None:
    told = Done([])
    for life in (1, 2):
        async with owner(told) as at:
            await until(lambda: sorted(at.begun) == [0, 1, 2])
            told = at.told()
            assert told == Done([], life)
    async with owner(told) as at:
        await until(lambda: at.begun == [0])
        told = at.told()
        assert told == Done([], 3, 0), "it was committed before it began"
        await asyncio.sleep(0.05)
        assert at.begun == [0], "nothing runs beside it"
    async with owner(told) as at:
        at.may_end.set()
        await until(lambda: sorted(at.begun) == [1, 2])
        assert at.aside.letter().reason is sdk.DeadLetterReason.KILLED
        await until(lambda: at.committed == 3)
        assert at.told() == Done([])


async def test_progress_says_that_nobody_was_killed() -> None:
    async with owner(Done([], 1)) as at:
        at.may_end.set()
        await until(lambda: at.committed == 3)
        assert at.told() == Done([])


async def test_a_careful_owner_is_so_until_all_that_may_have_run_is_done() -> None:
    """A fast killer is behind others, whose end nobody had the time to commit."""
    async with owner(Done([], 2)) as at:
        at.may_end.set()
        for done in (0, 1):
            await until(lambda: len(at.suspects) > done)  # noqa: B023 - it ends here
        assert at.suspects[:2] == [0, 1]


async def test_a_careful_owner_that_is_through_is_careful_no_more() -> None:
    async with owner(Done([], 2)) as at:
        await until(lambda: at.begun == [0])
        at.may_end.set()
        await until(lambda: sorted(at.begun) == [0, 1, 2])
        await until(lambda: at.committed == 3)
        assert at.told() == Done([])
        assert at.aside.sent == []


async def test_a_bucket_that_is_given_up_in_good_order_says_so() -> None:
    async with owner(Done([], 1)) as at:
        await until(lambda: len(at.begun) == 3)
        assert at.told().lives == 2
        (holding,) = at.consumer._core.holdings.values()
        at.consumer._core._stop(holding, at.consumer._now() + 50.0, Loss.NOT_HELD)
        at.consumer._poke.set()
        await asyncio.sleep(0.02)
        assert at.told().lives == 2, "what runs may end the process yet"
        at.may_end.set()
        await until(lambda: not holding.is_held)
        assert at.told().lives == 0


async def test_care_ends_when_what_is_left_is_blocked_and_has_ended_nothing() -> None:
    async with owner(Done([], 2), "a") as at:
        at.failure = ValueError("now and then")
        at.may_end.set()
        await until(lambda: at.begun == [0])
        (holding,) = at.consumer._core.holdings.values()
        await until(lambda: not there(holding.gaps).lives.is_careful)


def test_a_consumer_that_has_lapsed_itself_knows_that_nobody_was_killed() -> None:
    for lapsed, before, killer in ((False, 3, 5), (True, 2, None)):
        holding = Holding(SegmentBucket(0, 0), "k", None)
        holding.done_above, holding.is_after_lapse = (0, Done([], 3, 5)), lapsed
        holding.begin(0)
        lives = there(holding.work_apart()).lives
        assert (lives.before, lives.killer) == (before, killer)


async def test_a_killer_that_is_another_message_is_no_reason_to_be_alone() -> None:
    """What was done above the watermark is known, and the suspect is judged by its offset."""
    async with owner(Done([(1, 2)], 3, 2)) as at:
        at.may_end.set()
        await until(lambda: at.begun == [0])
        await until(lambda: at.committed == 3)
        assert at.aside.letter().offset == 2
        assert at.begun == [0]


@pytest.mark.parametrize("before", [0, 1, 5, 500])
def test_lives_and_suspect_are_committed_with_the_map(before: int) -> None:
    gaps = Gaps(40, [(45, 50)], Lives.after(before, None))
    assert not gaps.is_told(44)
    gaps.start(44)
    text = written(gaps, "g", PLACE)
    is_careful = before >= 2
    told = there(read(text, "g", PLACE, 40, 100))
    assert told == Done([(45, 50)], min(before + 1, 127), 44 if is_careful else None)


def test_nothing_begins_while_a_commit_names_what_has_ended() -> None:
    """Else its end of the process would be taken for that of the one that is named."""
    gaps = Gaps(0, (), Lives.after(2, None))
    gaps.is_told(0)
    gaps.saved = gaps.version
    assert gaps.is_told(0)
    gaps.name_nobody()
    assert gaps.waits
    assert read(written(gaps, "g", PLACE), "g", PLACE, 0, 100) == Done([], 3)
