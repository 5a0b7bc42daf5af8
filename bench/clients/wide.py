"""Producing to many segments by one producer, and by many producers of one client.

Each run is a process of its own (`wide_process`): the SDK's, and then the bare client's, which
sends the same keys to the same Kafka topics and partitions.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec

from bench.clients.wide_process import MESSAGES, Produced
from bench.figure import Measured
from bench.place import Place
from bench.topics.topic_under_test import TopicUnderTest

_REPEATS: Final = 5
_WIDEST: Final = 256
_TOPICS: Final = 10
_CHILD_S: Final = 300.0
_GOALS: Final = {1: 0.85, 64: 0.7, _WIDEST: 0.7}
_GOAL_FIRST: Final = 1.3
_GOAL_THREADS: Final = 40
_GOAL_FILES: Final = 100
_GOAL_MB: Final = 80.0
_WHAT: Final = "bare confluent-kafka, the same keys to the same Kafka topics and partitions"


class _Runs(msgspec.Struct, frozen=True):
    """The SDK's and the bare client's, in turn."""

    ours: list[Produced]
    bare: list[Produced]

    def details(self) -> dict[str, Any]:
        runs: dict[str, Any] = {"messages": MESSAGES, **msgspec.to_builtins(self)}
        return runs


def rate(place: Place, segments: int) -> Measured:
    """Messages a second of the second turn; the first one makes all that is made once."""
    runs = _runs(place, segments)
    ours = [each.second.rate for each in runs.ours]
    bare = [each.second.rate for each in runs.bare]
    return Measured(
        statistics.median(ours),
        "msg/s",
        statistics.median(one / other for one, other in zip(ours, bare, strict=True)),
        _GOALS[segments],
        at_least=True,
        limit=statistics.median(bare),
        limit_what=_WHAT,
        details={"segments": segments, **runs.details()},
    )


def first(place: Place) -> Measured:
    """Processor time of the first turn by that of the second one, over the most segments."""
    runs = _runs(place, _WIDEST)
    ratios = [each.first.processor_s / each.second.processor_s for each in runs.ours]
    value = statistics.median(each.first.processor_s for each in runs.ours)
    return Measured(
        value,
        "s",
        statistics.median(ratios),
        _GOAL_FIRST,
        limit=statistics.median(each.second.processor_s for each in runs.ours),
        limit_what="the next as many messages",
        details={"ratios": ratios, "of": f"wide-{_WIDEST}"},
    )


def threads(place: Place) -> Measured:
    """Those of the whole process, over the most segments."""
    return _most(_runs(place, _WIDEST), lambda run: run.threads, "threads", _GOAL_THREADS)


def files(place: Place) -> Measured:
    """Its open files, connections included."""
    return _most(_runs(place, _WIDEST), lambda run: run.files, "files", _GOAL_FILES)


def memory(place: Place) -> Measured:
    """By how much it grows at most."""
    return _most(_runs(place, _WIDEST), lambda run: run.grown_mb, "MB", _GOAL_MB)


def ten_threads(place: Place) -> Measured:
    """The same of ten producers in one client, each of a topic of its own."""
    return _most(_ten(place), lambda run: run.threads, "threads", _GOAL_THREADS)


def ten_files(place: Place) -> Measured:
    """Their open files."""
    return _most(_ten(place), lambda run: run.files, "files", _GOAL_FILES)


def _most(runs: _Runs, which: Callable[[Produced], float], unit: str, goal: float) -> Measured:
    """Of the SDK's runs the worst, beside the bare client's where that has run."""
    value = max(map(which, runs.ours))
    return Measured(
        value,
        unit,
        value,
        goal,
        limit=max(map(which, runs.bare)) if runs.bare else None,
        limit_what=_WHAT if runs.bare else "",
        details={"each": [which(run) for run in runs.ours]},
    )


@cache
def _runs(place: Place, segments: int) -> _Runs:
    runs = _Runs([], [])
    with TopicUnderTest(place, segments) as topic:
        for _ in range(1 if place.quick else _REPEATS):
            runs.ours.append(_run(place, "sdk", [topic.name]))
            runs.bare.append(_run(place, "bare", [topic.name]))
    return runs


@cache
def _ten(place: Place) -> _Runs:
    with ExitStack() as stack:
        topics = [stack.enter_context(TopicUnderTest(place)).name for _ in range(_TOPICS)]
        return _Runs([_run(place, "sdk", topics)], [])


def _run(place: Place, how: str, topics: Sequence[str]) -> Produced:
    module = "bench.clients.wide_process"
    command = [sys.executable, "-m", module, how, place.service_urls(), *topics]
    answer = subprocess.run(
        command,
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        timeout=_CHILD_S,
        check=True,
    )
    return msgspec.json.decode(answer.stdout, type=Produced)
