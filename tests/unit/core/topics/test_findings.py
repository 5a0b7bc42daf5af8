"""What is told of a segment's Kafka topic that somebody else has changed."""

from __future__ import annotations

import pytest

from anabranch.core.topics.findings import Expected, KafkaTopic, SegmentFinding, findings

_SEAL = {"max.message.bytes": "78"}
_LIVED_BY = {"cleanup.policy": "delete", "retention.ms": "-1"}
_SEALED = {**_LIVED_BY, **_SEAL}
_OPEN = {**_LIVED_BY, "max.message.bytes": "1000"}
_OTHER = SegmentFinding.OTHER_TOPIC


@pytest.mark.parametrize(
    ("sealed", "found", "told"),
    [
        (True, KafkaTopic("one", 4, _SEALED), {}),
        (False, KafkaTopic("one", 4, _OPEN), {}),
        (False, None, {SegmentFinding.MISSING: "what it held is lost"}),
        (True, None, {SegmentFinding.MISSING: "what it held, 15 messages at most, is lost"}),
        (True, KafkaTopic("one", 4, _OPEN), {SegmentFinding.SEAL_GONE: "is 1000 and not 78"}),
        (False, KafkaTopic("one", 4, _SEALED), {SegmentFinding.SETTINGS: "its topic is sealed"}),
        (
            True,
            KafkaTopic("one", 4, {**_SEALED, "cleanup.policy": "compact", "retention.ms": "9"}),
            {SegmentFinding.SETTINGS: "cleanup.policy is compact and not delete, retention.ms is"},
        ),
        (True, KafkaTopic("one", 5, _SEALED), {SegmentFinding.PARTITIONS: "that were added"}),
        (True, KafkaTopic("two", 4, _SEALED), {_OTHER: "with id two and not one"}),
        (
            True,
            KafkaTopic("two", 1, {}),
            {_OTHER: "made anew", SegmentFinding.PARTITIONS: "1 partitions and not 4"},
        ),
    ],
)
def test_each_change_is_told_by_what_it_is(
    sealed: bool, found: KafkaTopic | None, told: dict[SegmentFinding, str]
) -> None:
    ends = (7, 0, 8, 0) if sealed else ()
    what = findings(Expected(4, sealed, _SEAL, _LIVED_BY, "one", ends), found)
    assert what.keys() == told.keys()
    assert all(said in what[finding] for finding, said in told.items())
