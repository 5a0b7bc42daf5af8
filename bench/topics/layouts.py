"""Reading layouts from a node by REST."""

from __future__ import annotations

from contextlib import ExitStack
from functools import cache

from bench.figure import Measured
from bench.http import wrk
from bench.place import Place
from bench.topics.topic_under_test import TopicUnderTest

_TOPICS = 100
_SEGMENTS = 4
_SECONDS = 5
_PEER_RATE = 13_800
_PEER_P99_MS = 6.5


def reads(place: Place) -> Measured:
    """wrk against one of three nodes, the layouts of some topics in turn."""
    found = _load(place)
    return Measured(
        found.rate,
        "reads/s",
        found.rate,
        _PEER_RATE,
        at_least=True,
        limit=found.limit,
        limit_what=wrk.LIMIT_WHAT,
        details={"topics": _TOPICS, "segments": _SEGMENTS, "rates": found.rates},
    )


def tail(place: Place) -> Measured:
    """The 99th percentile of the same."""
    found = _load(place).p99_ms
    return Measured(found, "ms", found, _PEER_P99_MS)


@cache
def _load(place: Place) -> wrk.Load:
    with ExitStack() as stack:
        topics = [
            stack.enter_context(TopicUnderTest(place, _SEGMENTS))
            for _ in range(_TOPICS // 10 if place.quick else _TOPICS)
        ]
        return wrk.load(place, [topic.path for topic in topics], _SECONDS)
