"""The start of a producer with a name after a kill, beyond the time of the dead one's session."""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from anabranch.client import Client
from anabranch.client._producer.named import LAPSE_S
from bench.figure import Measured
from bench.place import Place
from bench.topics.topic_under_test import TopicUnderTest

_SEGMENTS: Final = 1_000
_UNSETTLED: Final = 1_000
_TURNS: Final = 3
_GOAL_S: Final = 1.0
_CHILD_S: Final = 120.0
_NAME: Final = "bench"


def start(place: Place) -> Measured:
    """Seconds of `create_producer` without the wait; the median of some kills."""
    segments = _SEGMENTS // 10 if place.quick else _SEGMENTS
    taken: list[float] = []
    found: list[int] = []
    for _ in range(1 if place.quick else _TURNS):
        with TopicUnderTest(place, segments) as topic:
            _kill_one(place, topic)
            seconds, settled = asyncio.run(_start(place, topic))
            taken.append(seconds - LAPSE_S)
            found.append(settled)
    return Measured(
        statistics.median(taken),
        "s",
        statistics.median(taken),
        _GOAL_S,
        details={"starts": taken, "segments": segments, "settled": found},
    )


def _kill_one(place: Place, topic: TopicUnderTest) -> None:
    """Has a process send, and ends it before it has noted what is settled."""
    with TemporaryDirectory() as folder:
        noted = Path(folder) / "noted"
        where = (place.service_urls(), topic.name, str(noted), str(_UNSETTLED + 1), _NAME)
        child = subprocess.Popen([sys.executable, "-m", "support.numbering", *where])
        deadline = time.monotonic() + _CHILD_S
        try:
            while not noted.exists() or noted.read_bytes().count(b"\n") < _UNSETTLED:
                if time.monotonic() > deadline:
                    raise RuntimeError(f"the producer of {topic.name} sends nothing")
                time.sleep(0.001)
        finally:
            child.kill()
            child.wait()


async def _start(place: Place, topic: TopicUnderTest) -> tuple[float, int]:
    async with Client(place.service_urls()) as client:
        began = time.monotonic()
        producer = await client.create_producer(topic.name, name=_NAME, deduplicate=True)
        return time.monotonic() - began, producer.sequence
