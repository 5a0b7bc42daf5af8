"""Recordings of load, made by hand: brokers, bundles of a namespace, megabytes a second."""

from __future__ import annotations

from anabranch.core.balance.recording import BrokerLine, BundleLine, Line, RecordedLoad

MB = 1e6
MINUTE_MS = 60_000
B = [f"b{number}:80" for number in range(4)]
PARTS = [f"t/n/0x{at:x}0000000_0x{at + 1:x}0000000" for at in range(15)]


def carrying(*brokers: str, capacity: float = 10 * MB, idle: float = 0.0) -> list[Line]:
    """Brokers that are full at so many bytes a second."""
    return [BrokerLine(0, broker, capacity, idle) for broker in brokers]


def bundle(number: int, owner: str, megabytes: float, minute: float = 0.0) -> BundleLine:
    """What a bundle takes from that minute on."""
    load = RecordedLoad(msg_throughput_in=megabytes * MB)
    return BundleLine(round(minute * MINUTE_MS), PARTS[number], owner, load)


# One broker of two has all of the load.
HOT = [*carrying(*B[:2]), *(bundle(number, B[0], 2.0) for number in range(4))]
