"""Recordings of load: which lines are refused and why, and what a recorder makes of reports."""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec
import pytest

from anabranch.core.balance.bundle_load import BundleLoad, TopBundlesLoadData
from anabranch.core.balance.recording import (
    BrokerLine,
    BundleLine,
    LoadRecorder,
    RecordedResources,
    RecordedUse,
    parse_recording,
)
from anabranch.core.balance.reports import Resources
from anabranch.core.balance.usage import NOTHING_USED, ResourceUsage
from anabranch.core.errors import InvalidInputError

ONE = "public/default/0x00000000_0x80000000"
TWO = "public/default/0x80000000_0xffffffff"


def lines(*forms: dict[str, Any]) -> list[bytes]:
    return [json.dumps(each).encode() for each in forms]


def broker(name: str, at: int = 0, **fields: Any) -> dict[str, Any]:
    return {"timeMs": at, "broker": name, **(fields or {"capacity": 1e6})}


def bundle(name: str, owner: str, at: int = 0, **load: Any) -> dict[str, Any]:
    return {"timeMs": at, "bundle": name, "broker": owner, "load": load}


BROKERS = [broker("b1:80"), broker("b2:80")]
LATER = bundle(ONE, "b1:80", 9_000)


def test_a_recording_is_read_line_by_line() -> None:
    measured = {"cpu": {"usage": 30, "limit": 100.0}, "directMemory": {"usage": 1, "limit": 8}}
    found = parse_recording(
        [
            *lines(
                broker("b1:80", resources=measured),
                broker("b2:80", capacity=5e6, idle=0.1),
                bundle(ONE, "b1:80", 5, msgRateIn=2, msgThroughputOut=7.5, topics=3),
            ),
            b"",
            b"  ",
            *lines(LATER),
        ]
    )
    first, second, third, _ = found.lines
    uses = RecordedResources(cpu=RecordedUse(30.0, 100.0), direct_memory=RecordedUse(1.0, 8.0))
    assert first == BrokerLine(0, "b1:80", resources=uses)
    assert second == BrokerLine(0, "b2:80", 5e6, 0.1)
    assert isinstance(third, BundleLine)
    assert third.load.plain == BundleLoad(2.0, msg_throughput_out=7.5, topics=3)
    assert (found.begin_ms, found.end_ms) == (0, 9_000)
    assert (found.brokers, found.bundles) == (("b1:80", "b2:80"), (ONE,))


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"{", "line 3: Input data was truncated"),
        (b"\xff\xfe", "line 3: "),
        (b'{"timeMs": 0, "broker": "b1:80", "capacity": NaN}', "line 3: JSON is malformed"),
        *(
            (lines(form)[0], why)
            for form, why in (
                (
                    broker("b1:80", capacity=1, more=1),
                    "line 3: Object contains unknown field `more`",
                ),
                (
                    broker("b1:80", resources={"cpu": {"usage": 1, "most": 1}}),
                    "unknown field `most` - at `$.resources.cpu`",
                ),
                (bundle(ONE, "b1:80", -1), "line 3: timeMs -1 is no time"),
                (bundle(ONE, "b1:80", 10**15), "is no time"),
                (bundle(ONE, "b1:80", msgRateIn=-2), "line 3: msgRateIn is negative: -2.0"),
                (bundle(ONE, "b1:80", msgRateIn=1e16), "msgRateIn is too much"),
                (
                    broker("b1:80", resources={"cpu": {"usage": -1, "limit": 1}}),
                    "line 3: usage of cpu is negative: -1.0",
                ),
                (broker("b1:80", capacity=0), "line 3: a capacity of 0 bytes a second is none"),
                (broker("b1:80", capacity=5, idle=1), "idle is 1: it must be a share"),
                (broker("b1:80", capacity=5, idle=-0.1), "idle is -0.1"),
                (broker("b1:80", resources={}, idle=0.1), "idle goes with a capacity"),
                (broker("b1:80", idle=0.1), "needs its resources, or a capacity, and not both"),
                (broker("b1:80", resources={}, capacity=5), "and not both"),
                (broker("b1:80", resources={}), "of b1:80 some lines have resources and some"),
                (broker("nobody"), "nobody"),
                (bundle("public/default/all", "b1:80"), "0x00000000_0x40000000"),
                (bundle("default/0x00000000_0x80000000", "b1:80"), "line 3: "),
                (bundle(ONE, "b9:80"), "line 3: no line says what broker b9:80 uses, or can carry"),
            )
        ),
    ],
)
def test_a_line_that_cannot_be_meant_is_refused_with_its_number(line: bytes, why: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        parse_recording([*lines(*BROKERS), line, *lines(LATER)])
    assert why in str(refused.value)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ([], "there are lines about 0 brokers"),
        ([broker("b1:80"), LATER], "there are lines about 1 brokers: two are the least"),
        ([*BROKERS, broker("b1:80", 9)], "there is no line about a bundle"),
        ([*BROKERS, bundle(ONE, "b1:80")], "all lines are of one time"),
    ],
)
def test_what_cannot_be_replayed_is_refused(given: list[dict[str, Any]], why: str) -> None:
    with pytest.raises(InvalidInputError, match=f"^{why}[^;]*$"):
        parse_recording(lines(*given))


def test_two_times_are_enough_to_be_replayed_and_no_share_is_idle() -> None:
    small = broker("b2:80", capacity=1, idle=0)
    for second in (small, small | {"timeMs": 9_000}):
        assert parse_recording(lines(BROKERS[0], second, LATER)).end_ms == 9_000


def test_the_first_faults_are_told_together_and_not_all_of_many() -> None:
    with pytest.raises(InvalidInputError) as refused:
        parse_recording([*lines(*BROKERS), *[b"{"] * 20])
    told = str(refused.value).split("; ")
    assert [each.partition(":")[0] for each in told[:10]] == [f"line {n}" for n in range(3, 13)]
    assert told[10:] == ["and perhaps more"]


# --- recording ------------------------------------------------------------------------------------


def using(cpu: float) -> Resources:
    return Resources(ResourceUsage(cpu, 100.0), *[NOTHING_USED] * 4)


def top(**throughputs: float) -> TopBundlesLoadData:
    names = {"one": ONE, "two": TWO}
    bundles = (
        (names[key], BundleLoad(msg_throughput_in=each)) for key, each in throughputs.items()
    )
    return TopBundlesLoadData(tuple(bundles), 1)


def told(found: list[bytes]) -> list[tuple[int, str, str, float]]:
    """Time, bundle, owner and throughput of each line."""
    return [
        (f["timeMs"], f["bundle"], f["broker"], f["load"].get("msgThroughputIn", 0.0))
        for f in [msgspec.json.decode(each) for each in found]
    ]


def test_what_brokers_report_becomes_a_recording_that_can_be_read() -> None:
    recorder = LoadRecorder()
    found = [
        *recorder.measured("b1:80", using(30.0), 1_000),
        *recorder.measured("b2:80", using(10.0), 900),  # a clock went back
        *recorder.reported("b1:80", top(one=7.0, two=8.0), 1_100),
        *recorder.reported("b1:80", top(one=7.0, two=9.0), 2_000),
    ]
    recording = parse_recording(found)
    assert [each.time_ms for each in recording.lines] == [1_000, 1_000, 1_100, 1_100, 2_000]
    assert recording.lines[1] == BrokerLine(
        1_000, "b2:80", resources=RecordedResources(cpu=RecordedUse(10.0, 100.0))
    )
    assert told(found[2:]) == [
        (1_100, ONE, "b1:80", 7.0),
        (1_100, TWO, "b1:80", 8.0),
        (2_000, TWO, "b1:80", 9.0),
    ]
    assert (recorder.lines, recorder.brokers, recorder.bundles) == (5, {"b1:80", "b2:80"}, 2)


def test_a_bundle_that_nobody_reports_any_more_has_no_load() -> None:
    recorder = LoadRecorder()
    recorder.reported("b1:80", top(one=7.0, two=8.0), 1)
    dropped = told(recorder.reported("b1:80", top(one=6.0), 2))
    assert dropped == [(2, ONE, "b1:80", 6.0), (2, TWO, "b1:80", 0.0)]
    assert recorder.reported("b1:80", top(one=6.0), 3) == []
    assert told(recorder.reported("b1:80", None, 4)) == [(4, ONE, "b1:80", 0.0)]


def test_what_cannot_be_meant_is_not_recorded() -> None:
    recorder = LoadRecorder()
    assert recorder.measured("b1:80", using(math.nan), 1) == []
    assert recorder.measured("b1:80", using(-1.0), 1) == []
    bad = TopBundlesLoadData(((ONE, BundleLoad(math.inf)), ("no bundle", BundleLoad(1.0))), 1)
    assert recorder.reported("b1:80", bad, 1) == []
    assert (recorder.lines, recorder.bundles) == (0, 0)
