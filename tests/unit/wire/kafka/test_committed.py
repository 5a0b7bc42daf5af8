"""What groups have committed is asked for to the byte, and what Kafka's answers mean."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from anabranch.wire.kafka.committed import Committed, CommittedReader
from anabranch.wire.kafka.protocol import Address, KafkaProtocolError
from support.group_coordinator import FIND, NOT_COORDINATOR, GroupCoordinator
from support.waiting import WAIT_S

PLACES = [("orders", 0), ("orders", 2), ("bills", 1)]


@contextmanager
def reading(*coordinators: GroupCoordinator) -> Iterator[CommittedReader]:
    reader = CommittedReader({}, WAIT_S)
    try:
        with closing(reader):
            yield reader
    finally:
        for each in coordinators:
            each.close()


def _noted(offsets: dict[tuple[str, int], int], error: int = 0) -> Committed:
    return Committed(offsets, error, {place: "note" for place, at in offsets.items() if at >= 0})


def test_each_coordinator_tells_of_its_own_groups_and_keeps_no_others_back() -> None:
    first, second = GroupCoordinator({PLACES[0]: 1}), GroupCoordinator({PLACES[0]: 2})
    with reading(first, second) as reader:
        second.named = first.address
        found = reader.committed([second.address], {"g0": PLACES[:1]})
        assert found == {"g0": _noted({PLACES[0]: 1})}
        assert second.questions == [(FIND, 4)]
        first.elsewhere = {"away"}
        first.errors = {"g0": NOT_COORDINATOR}
        asked = dict.fromkeys(("g0", "away", "g1"), PLACES[:1])
        assert reader.committed([first.address], asked) == {
            "away": Committed({}, NOT_COORDINATOR),
            "g0": _noted({PLACES[0]: 1}, NOT_COORDINATOR),
            "g1": Committed({PLACES[0]: -1}),
        }
        first.is_mute = True
        assert reader.committed([first.address], asked) == {"away": Committed({}, NOT_COORDINATOR)}


def test_a_connection_that_kafka_has_closed_is_made_again() -> None:
    kafka = GroupCoordinator({PLACES[0]: 1})
    with reading(kafka) as reader:
        for _ in range(2):
            found = reader.committed([kafka.address], {"g0": PLACES[:1]})
            assert found["g0"].offsets == {PLACES[0]: 1}
            kafka.hang_up()
        assert kafka.connections == 2


def test_a_broker_that_is_away_is_passed_over_and_if_all_are_that_is_said() -> None:
    kafka = GroupCoordinator({PLACES[0]: 1})
    with socket.create_server(("127.0.0.1", 0)) as door:
        away: Address = door.getsockname()
    with reading(kafka) as reader:
        assert reader.committed([away, kafka.address], {"g0": PLACES[:1]})
        with pytest.raises(OSError, match="refused"):
            reader.committed([away], {"g0": PLACES[:1]})
        with pytest.raises(KafkaProtocolError, match="no brokers"):
            reader.committed([], {"g0": PLACES[:1]})
