"""Splitting and merging idle topics through REST."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import cache, partial

from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.cimpl import NewTopic

from bench.bare import BareKafka
from bench.figure import Measured, spread
from bench.place import Place
from bench.scalable import TopicUnderTest

_GOAL_MS = 60.0
_RATIO = 1.5
_ANSWER_S = 30.0
_WARM = 3
_WHAT = "creating as many Kafka topics at once, then one change of a topic's settings"


def split(place: Place) -> Measured:
    """From the request until its answer, one at a time; each split is merged again."""
    return _judged(place, "split")


def merge(place: Place) -> Measured:
    """The same of the merges."""
    return _judged(place, "merge")


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
        details={"goal_ms": _GOAL_MS, "goal_ratio": _RATIO}
        | {name: spread(times) for name, times in took.items() if what in name},
    )


@cache
def _all(place: Place) -> dict[str, list[float]]:
    """Milliseconds of splits, of the merges that undo them, and of their limits, in turn."""
    took: dict[str, list[float]] = {"split": [], "bare split": [], "merge": [], "bare merge": []}
    with TopicUnderTest(place) as topic, BareKafka(place) as kafka:
        for _ in range(_WARM + (10 if place.quick else 40)):
            (parent,) = topic.active()
            took["split"].append(_ms(partial(topic.split, parent)))
            one, other = topic.active()
            took["bare split"].append(_ms(partial(_change, kafka, 2, topic.partitions(one))))
            took["merge"].append(_ms(partial(topic.merge, one, other)))
            (child,) = topic.active()
            took["bare merge"].append(_ms(partial(_change, kafka, 1, topic.partitions(child))))
    return {name: times[_WARM:] for name, times in took.items()}


def _ms(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return (time.perf_counter() - began) * 1000


def _change(kafka: BareKafka, topics: int, partitions: int) -> None:
    """What no split or merge can do without."""
    names = [kafka.new_name() for _ in range(topics)]
    new = [NewTopic(name, partitions, 1) for name in names]
    for future in kafka.admin.create_topics(new).values():
        future.result(_ANSWER_S)
    change = ConfigEntry("max.message.bytes", "1000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, names[0], incremental_configs=[change])
    for future in kafka.admin.incremental_alter_configs([resource]).values():
        future.result(_ANSWER_S)
