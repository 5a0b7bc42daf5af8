"""Splitting and merging idle topics through REST: the whole, and how long producers are held."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import cache, partial

from bench.clients.bare import BareKafka
from bench.figure import Measured, spread
from bench.place import Place
from bench.topics.floor import BareSteps, all_of, ask_to_change, create, settle
from bench.topics.topic_under_test import TopicUnderTest

_GOAL_MS = 60.0
_RATIO = 1.5
_WARM = 3
_HELD = ("seal", "commit")  # the steps in which the parents take nothing
_WHAT = "creating as many Kafka topics at once, then one change of a topic's settings"
_FLOOR_WHAT = (
    "all calls of Kafka that the operation consists of, by bare clients (bench.topics.floor)"
)


def split(place: Place) -> Measured:
    """From the request until its answer, one at a time; each split is merged again."""
    return _judged(place, "split")


def merge(place: Place) -> Measured:
    """The same of the merges."""
    return _judged(place, "merge")


def split_held(place: Place) -> Measured:
    """From the record SEALING to the record COMMIT, by the node that carries the split out."""
    return _held(place, "split")


def merge_held(place: Place) -> Measured:
    """The same of the merges."""
    return _held(place, "merge")


def _judged(place: Place, what: str) -> Measured:
    took = _all(place)
    value = statistics.median(took[what])
    limit = statistics.median(took[f"bare {what}"])
    # Of the two limits, the one that is harder to keep.
    goal = min(_GOAL_MS, _RATIO * limit)
    return Measured(
        value,
        "ms",
        value,
        goal,
        limit=limit,
        limit_what=_WHAT,
        floor=statistics.median(took[f"floor of {what}"]),
        floor_what=_FLOOR_WHAT,
        details={"goal_ms": _GOAL_MS, "goal_ratio": _RATIO}
        | {name: spread(times) for name, times in took.items() if what in name},
    )


def _held(place: Place, what: str) -> Measured:
    took = _all(place)
    value = statistics.median(took[f"{what}: held"])
    limit = statistics.median(took[f"floor of {what}: held"])
    return Measured(
        value,
        "ms",
        value / limit,
        _RATIO,
        limit=limit,
        limit_what="the same calls of Kafka, by bare clients (bench.topics.floor)",
        floor=statistics.median(took[f"floor of {what}: asked"]) if place.copies > 1 else None,
        floor_what="the same, and asking each broker until it shows the second setting",
        details={name: spread(times) for name, times in took.items() if what in name},
    )


@cache
def _all(place: Place) -> dict[str, list[float]]:
    """Milliseconds of splits, of the merges that undo them, and of their limits, in turn."""
    took: dict[str, list[float]] = {}
    with TopicUnderTest(place) as topic, BareKafka(place) as kafka:
        (first,) = topic.active()
        partitions = topic.partitions(first)
        steps = BareSteps(kafka, partitions)
        asking = BareSteps(kafka, partitions, asks=True) if place.copies > 1 else None

        def note(what: str, ms: float) -> None:
            took.setdefault(what, []).append(ms)

        def timed(what: str, act: Callable[[], None]) -> None:
            settle(kafka)
            began = time.perf_counter()
            act()
            note(what, (time.perf_counter() - began) * 1000)

        def stepped(what: str, act: Callable[[], None]) -> None:
            before = topic.steps_ms()
            timed(what, act)
            after = topic.steps_ms()
            if after == before:
                raise RuntimeError(f"another node than before has carried out a {what}")
            for step, ms in after.items():
                note(f"{what}: {step}", ms - before.get(step, 0.0))
            note(f"{what}: held", sum(took[f"{what}: {step}"][-1] for step in _HELD))

        def floored(what: str, children: int) -> None:
            settle(kafka)
            whole, held = steps.run(children)
            note(f"floor of {what}", whole)
            note(f"floor of {what}: held", held)
            if asking is not None:
                settle(kafka)
                note(f"floor of {what}: asked", asking.run(children)[1])

        for _ in range(_WARM + (10 if place.quick else 40)):
            (parent,) = topic.active()
            stepped("split", partial(topic.split, parent))
            one, other = topic.active()
            timed("bare split", partial(_change, kafka, 2, partitions))
            floored("split", 2)
            stepped("merge", partial(topic.merge, one, other))
            timed("bare merge", partial(_change, kafka, 1, partitions))
            floored("merge", 1)
        steps.close()
        if asking is not None:
            asking.close()
    return {name: times[_WARM:] for name, times in took.items()}


def _change(kafka: BareKafka, topics: int, partitions: int) -> None:
    """What no split or merge can do without."""
    names = create(kafka, topics, partitions)
    all_of(ask_to_change(kafka, names[:1], "1000"))
