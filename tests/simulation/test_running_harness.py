"""The simulation of handlers that run side by side finds planted bugs, as that of topics does."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import msgspec
import pytest

from anabranch.client._consumer import gaps as maps
from anabranch.client._consumer.core import ConsumerCore
from anabranch.client._consumer.gaps import Done, Gaps
from anabranch.client._consumer.holding import Holding
from anabranch.client._stream import consumer as stream
from anabranch.client._stream.lanes import Item, KeyLane, Lanes
from anabranch.client._stream.schedule import Schedule, Started
from simulation import running_checks
from simulation.planted import noticed, side_by_side
from support.there import there

pytestmark = pytest.mark.simulation

violation_found = partial(noticed, "topics")

FAULTS = ("crash", "pause", "cut", "close")


# --- keys -----------------------------------------------------------------------------------


def test_a_lane_that_is_free_before_its_handler_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    take = Lanes.take

    def free(self: Lanes[Any]) -> Item[Any] | None:
        item = take(self)
        if item is not None:
            item.lane.running = 0
            self._go_on(item.lane)
        return item

    def done(self: Lanes[Any], item: Item[Any]) -> None:
        pass  # its lane went on before

    side_by_side(monkeypatch, {"fails": 0.0})
    monkeypatch.setattr(Lanes, "take", free)
    monkeypatch.setattr(Lanes, "done", done)
    violation_found("while another one has", "before", "is done of its key")


def test_a_key_whose_lane_goes_with_its_bucket_while_a_handler_has_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drop = Lanes.drop

    def forget(self: Lanes[Any], number: int) -> None:
        drop(self, number)
        for key, lane in list(self._lanes.items()):
            if not lane.items:
                self._lanes[key] = KeyLane(key)  # what comes back does not find what runs

    side_by_side(monkeypatch, {"busy_s": 2.0, "stubborn": 1.0}, client_faults=("cut", "close"))
    monkeypatch.setattr(Lanes, "drop", forget)
    violation_found("while another one has", first_seed=2)


def test_what_was_queued_of_a_bucket_stays_when_it_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    side_by_side(monkeypatch, client_faults=FAULTS)
    monkeypatch.setattr(Lanes, "drop", lambda self, number: None)
    violation_found("not at rest", "nobody has served", "is done of its key", "before")


def test_handlers_that_go_on_when_their_bucket_has_to_go(monkeypatch: pytest.MonkeyPatch) -> None:
    side_by_side(monkeypatch, {"hangs": 0.1}, client_faults=("cut", "close"), settle_s=2.0)
    monkeypatch.setattr(Schedule, "must_cancel", lambda self, part, holding, now: False)
    violation_found("while another one has", first_seed=2)


def test_a_failed_message_that_keeps_the_number_of_a_former_fetch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept = Schedule._is_kept

    def former(self: Schedule[Any], item: Item[Any], started: Started[Any]) -> bool:
        number = item.number
        is_kept = kept(self, item, started)
        if is_kept:
            item.number = number
            self.intake.open(started.part, number)
        return is_kept

    side_by_side(monkeypatch, {"fails": 0.4, "busy_s": 1.0}, client_faults=("close", "restart"))
    monkeypatch.setattr(Schedule, "_is_kept", former)
    violation_found("not at rest", "before", "is done of its key", first_seed=16)


def test_what_is_given_back_for_want_of_room_and_not_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    side_by_side(monkeypatch, {"fails": 0.4, "queued_max": 4}, sends_per_s=10.0)
    monkeypatch.setattr(Gaps, "unread", lambda self, start: None)
    violation_found("right after")


def test_what_is_on_its_way_of_a_bucket_that_has_stopped_and_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Between it and what is read when the bucket goes on, messages were given back."""

    def same(self: ConsumerCore, holding: Holding, start: int | None, otherwise: int = 0) -> int:
        former = holding.fetch
        number = serve(self, holding, start, otherwise)
        if former is None:
            return number
        holding.fetch = msgspec.structs.replace(there(holding.fetch), number=former.number)
        self._fetches[former.number] = self._fetches.pop(number)
        return former.number

    serve = ConsumerCore.serve
    side_by_side(monkeypatch, {"fails": 0.4, "queued_max": 4}, sends_per_s=10.0)
    monkeypatch.setattr(ConsumerCore, "serve", same)
    violation_found("right after")


# --- positions ------------------------------------------------------------------------------


def test_a_map_that_is_one_off(monkeypatch: pytest.MonkeyPatch) -> None:
    written = maps.written

    def shifted(gaps: Gaps, *where: Any) -> str:
        runs = [(start + 1, end + 1) for start, end in gaps.runs]
        return written(Gaps(gaps.watermark, runs, gaps.lives), *where)

    side_by_side(monkeypatch)
    monkeypatch.setattr(stream, "written", shifted)
    violation_found("is not done", "is no map")


def test_a_message_that_counts_as_done_when_its_handler_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begins = Holding.work_begins

    def at_once(self: Holding, offset: int) -> None:
        begins(self, offset)
        self.finish(offset, offset)

    side_by_side(monkeypatch)
    monkeypatch.setattr(Holding, "work_begins", at_once)
    violation_found("is not done")


def test_a_message_that_counts_as_done_when_its_handler_is_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended = Schedule.ended

    def cancelled(
        self: Schedule[Any],
        started: Started[Any],
        outcomes: Mapping[Item[Any], BaseException],
        now: float,
        *,
        is_cancelled: bool,
    ) -> Any:
        left = {} if is_cancelled else outcomes
        return ended(self, started, left, now, is_cancelled=is_cancelled)

    side_by_side(monkeypatch, {"drains": 0.0, "busy_s": 1.0}, client_faults=("close", "restart"))
    monkeypatch.setattr(Schedule, "ended", cancelled)
    violation_found("is not done")


def test_a_message_that_runs_and_counts_as_done_when_it_is_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def skip(self: Gaps, start: int, offset: int) -> None:
        self._add(start, offset + 1)

    side_by_side(monkeypatch, {"hangs": 0.1}, client_faults=("close", "restart"))
    monkeypatch.setattr(Gaps, "skip", skip)
    violation_found("is not done")


def test_a_map_that_nobody_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    side_by_side(monkeypatch, client_faults=FAULTS)
    monkeypatch.setattr(stream, "read", lambda *_: Done([]))
    violation_found("again, which a commit of")


def test_a_map_that_goes_when_kafka_removes_what_lies_below(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A bug of the product: what the map named was done again."""
    sound = Holding.work_apart

    def strict(self: Holding) -> Gaps | None:
        if self.gaps is None and self.done_above[0] != self.acknowledged:
            self.done_above = (0, Done([]))
        return sound(self)

    side_by_side(monkeypatch, {"hangs": 0.02}, client_faults=FAULTS, removes=True, forgets=True)
    monkeypatch.setattr(Holding, "work_apart", strict)
    violation_found("again, which a commit of", first_seed=4)


def test_a_bucket_that_goes_before_its_map_is_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    def uncommitted(self: Holding) -> bool:
        if self.gaps is not None and self.gaps.waits:
            return True
        return self.acknowledged is not None and (self.committed or 0) < self.acknowledged

    side_by_side(monkeypatch, {"hangs": 0.05}, client_faults=FAULTS, settle_s=2.0)
    monkeypatch.setattr(Holding, "uncommitted", property(uncommitted))
    violation_found("and no commit names", "again, which")


def test_a_message_that_starts_though_its_map_may_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    busy: dict[str, object] = {"hangs": 0.05, "busy_s": 0.1, "queued_max": 200}
    side_by_side(monkeypatch, busy, client_faults=(), operators=False, sends_per_s=10.0)
    small_maps(monkeypatch)
    monkeypatch.setattr(Gaps, "admits", lambda self, start, offset: True)
    violation_found("characters for")


def small_maps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka takes next to nothing with a commit."""
    monkeypatch.setattr(maps, "BYTES_MAX", 12)
    monkeypatch.setattr(maps, "SPAN_MAX", 96)
    monkeypatch.setattr(running_checks, "METADATA_MAX", 44)
