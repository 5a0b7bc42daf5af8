"""The checker is checked: of bugs that are planted in some of its processes a run is found to break
the promise that each is to be found by; the same scene without a bug breaks none.

Bugs that are found by different promises share a run, which takes a minute or two. RUN: the name of
one of them (all).
"""

from __future__ import annotations

import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from faults.checker import violations
from faults.history import read
from faults.injection import inject
from faults.ownership import LATER_S
from faults.parts import QUEUE, STREAM
from faults.promises import Line, Promise, Violation
from faults.schedule import Fault, Kind
from faults.stack import Setup, Stack

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600), pytest.mark.usefixtures("engine")]

_FINISH_S: Final = 200.0
_LOOK_S: Final = 2.0
# What is judged while a run goes on; the others want to know what Kafka has in the end.
_AT_ONCE: Final = frozenset({Promise.TWO_OWNERS, Promise.WRONG_LOOKUP, Promise.GRANTED_TWICE})
_KAFKAS: Final = ("kafka-1",)
_NODES: Final = ("node-1", "node-2")
_PRODUCERS: Final = ("producers-1", "producers-2")
_STREAMS: Final = ("stream-1", "stream-2")
_QUEUES: Final = ("queue-1", "queue-2")


@dataclass(frozen=True, slots=True)
class Case:
    """A bug, who has it, and the promise that finds it. `about`: a word of what it says then."""

    bug: str
    whose: tuple[str, ...]
    found_by: Promise
    about: str = ""

    def among(self, found: Iterable[Violation]) -> list[Violation]:
        return [each for each in found if each.promise is self.found_by and self.about in each.what]


@dataclass(frozen=True, slots=True)
class Scene:
    """What goes on for `load_s`, the budget within which a bug must have shown itself."""

    load_s: float
    faults: tuple[Fault, ...] = ()
    parts: tuple[str, ...] = ("operator", *_PRODUCERS, *_STREAMS)
    operations: str = "RESHAPE"

    def violations(self, folder: Path, cases: tuple[Case, ...]) -> tuple[float, list[Violation]]:
        """When the topic was there, and all that is found. It ends early once each case is."""
        bugs = defaultdict(list)
        for case in cases:
            for name in case.whose:
                bugs[name].append(case.bug)
        planted = {name: ",".join(each) for name, each in bugs.items()}
        environment = {"OPERATIONS": self.operations, "DRAIN_S": "15", "PRODUCER_LIFE_S": "60 60"}
        setup = Setup(_KAFKAS, _NODES, self.parts, environment=environment, planted=planted)
        ends_early = bool(cases) and all(case.found_by in _AT_ONCE for case in cases)
        with Stack(folder, 1, setup) as stack, ThreadPoolExecutor(1) as beside:
            until = time.monotonic() + self.load_s
            injecting = beside.submit(inject, stack, self.faults)
            while time.monotonic() < until or not injecting.done():
                time.sleep(_LOOK_S)
                if ends_early:
                    lines = read(stack.history)
                    found = _settled(lines)
                    if all(case.among(found) for case in cases):
                        return _ready(lines), found
            injecting.result()
            stack.finish(_FINISH_S)
        lines = read(stack.history)
        return _ready(lines), violations(lines)


def _settled(lines: Sequence[Line]) -> list[Violation]:
    """What is found for certain while a run goes on: what is told later may excuse the rest."""
    certain = lines[-1]["at"] - LATER_S
    return [each for each in violations(lines) if each.at < certain]


def _ready(lines: Iterable[Line]) -> float:
    return float(min(line["at"] for line in lines if line["what"] == "ready"))


def _fault(number: int, kind: Kind, target: str, at_s: float, for_s: float, *peers: str) -> Fault:
    return Fault(number, kind, (target,), at_s, for_s, peers)


SCENES: Final = {
    "a node alone": Scene(
        22.0,
        (_fault(0, Kind.CUT, "node-1", 4.0, 15.0, *_KAFKAS),),
        ("operator", "observer"),
        "TRANSFER",
    ),
    "a producer alone": Scene(20.0, (_fault(0, Kind.ONE_WAY, "producers-1", 2.0, 13.0, *_KAFKAS),)),
    "consumers behind": Scene(
        20.0,
        tuple(_fault(n, Kind.PAUSE, each, 3.0, 7.0) for n, each in enumerate(_STREAMS)),
        ("operator", *_PRODUCERS, *_STREAMS, *_QUEUES),
    ),
    "calm": Scene(20.0),
}

RUNS: Final[tuple[tuple[str, tuple[Case, ...]], ...]] = (
    (
        "a node alone",
        (
            Case("lease-not-looked-at", _NODES, Promise.TWO_OWNERS),
            Case("last-wins", _NODES, Promise.GRANTED_TWICE),
        ),
    ),
    ("a node alone", (Case("routes-kept", _NODES, Promise.WRONG_LOOKUP),)),
    ("a producer alone", (Case("doubt-forgotten", _PRODUCERS[:1], Promise.TWICE),)),
    (
        "consumers behind",
        (
            Case("drained-early", _STREAMS, Promise.UNDELIVERED, STREAM),
            Case("unsettled-accepted", _QUEUES, Promise.UNDELIVERED, QUEUE),
        ),
    ),
    (
        "calm",
        (
            Case("committed-ahead", _STREAMS, Promise.UNDELIVERED),
            Case("granted-unreleased", _NODES, Promise.SERVED_TWICE),
        ),
    ),
)


def _id(value: object) -> str:
    return value if isinstance(value, str) else "+".join(case.bug for case in value)  # type: ignore[attr-defined]


_RUN: Final = os.environ.get("RUN", "")
_RUNS: Final = [(scene, cases) for scene, cases in RUNS if _RUN in ("", scene, _id(cases))]
_SCENES: Final = [name for name in SCENES if name in {scene for scene, _ in _RUNS}]


def test_bugs_of_one_run_are_told_apart() -> None:
    for _, cases in RUNS:
        assert len({(case.found_by, case.about) for case in cases}) == len(cases)


@pytest.mark.parametrize(("scene", "cases"), _RUNS, ids=_id)
def test_planted_bugs_are_found_by_their_promises(
    scene: str, cases: tuple[Case, ...], tmp_path: Path
) -> None:
    began, found = SCENES[scene].violations(tmp_path / "run", cases)
    missed = []
    for case in cases:
        named = case.among(found)
        first = min((each.at for each in named), default=began) - began
        sys.stdout.write(f"{case.bug}: {case.found_by} {len(named)} times, after {first:.0f} s\n")
        if not named:
            missed.append(case.bug)
    assert missed == [], f"found is {sorted({each.promise for each in found})}"


@pytest.mark.parametrize("scene", _SCENES)
def test_nothing_is_found_without_a_bug(scene: str, tmp_path: Path) -> None:
    _, found = SCENES[scene].violations(tmp_path / "run", ())
    assert found == []
