"""What a node knows of segments' loads."""

from __future__ import annotations

from anabranch.channel.load.loads import LoadTable, SegmentKey
from anabranch.core.autoscale.load import LoadRecord

TOPIC = "public/default/orders"


def load(rate: float) -> LoadRecord:
    return LoadRecord(rate, 100 * rate, 0.0, 0.0, False, True)


def test_a_table_tells_incarnations_apart_and_forgets_what_is_taken_away() -> None:
    table = LoadTable()
    table.take([(SegmentKey(TOPIC, 7, 0), load(1).at(1)), (SegmentKey(TOPIC, 8, 0), load(2).at(2))])
    assert table.segments(TOPIC, 7)[0].msg_rate_in == 1
    assert table.segments(TOPIC, 8)[0].msg_rate_in == 2
    table.take([(SegmentKey(TOPIC, 7, 0), None), (SegmentKey(TOPIC, 7, 0), None)])
    assert list(table.places(TOPIC)) == [SegmentKey(TOPIC, 8, 0)]
    table.take([(SegmentKey(TOPIC, 8, 0), None)])
    assert len(table) == 0
    assert list(table.topics()) == []
