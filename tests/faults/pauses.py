"""How long things stood still: of each key without an acknowledgement, of each bucket unread."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from faults.messages import message_of
from faults.promises import Line, Message

SENDING: Final = "not acknowledged"


@dataclass(frozen=True, slots=True)
class Pause:
    """Of what kind (`of`), of which key or bucket, and for how long."""

    of: str
    where: str
    begin: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.begin


def pauses(lines: Iterable[Line]) -> list[Pause]:
    """The longest one of each key and of each subscription's bucket, the longest first."""
    known = list(lines)
    worst: dict[tuple[str, str], Pause] = {}
    for pause in (*_of_keys(known), *_of_buckets(known)):
        before = worst.get((pause.of, pause.where))
        if before is None or pause.seconds > before.seconds:
            worst[pause.of, pause.where] = pause
    return sorted(worst.values(), key=lambda each: -each.seconds)


def _of_keys(lines: Iterable[Line]) -> Iterator[Pause]:
    """Between two acknowledgements of a key, as long as anybody sends."""
    last: dict[str, float] = {}
    for line in lines:
        if line["what"] == "acknowledged":
            if line["key"] in last:
                yield Pause(SENDING, line["key"], last[line["key"]], line["at"])
            last[line["key"]] = line["at"]


def _of_buckets(lines: Iterable[Line]) -> Iterator[Pause]:
    """From a message's acknowledgement to its first receipt, or between two receipts."""
    waiting: dict[Message, tuple[float, tuple[int, int]]] = {}
    received: defaultdict[str, set[Message]] = defaultdict(set)
    last: dict[tuple[str, int, int], float] = {}
    for line in lines:
        if line["what"] == "acknowledged" and "place" in line:
            waiting[message_of(line)] = line["at"], (line["place"][0], line["place"][1])
        elif line["what"] == "received":
            message, name = message_of(line), line["subscription"]
            found = waiting.get(message)
            if found is None or message in received[name]:
                continue
            received[name].add(message)
            acknowledged, (segment_id, bucket) = found
            where = name, segment_id, bucket
            # What waits behind another message waits since that one was received.
            since = max(acknowledged, last.get(where, acknowledged))
            last[where] = line["at"]
            if line["at"] > since:
                yield Pause(f"unread by {name}", f"{segment_id}/{bucket}", since, line["at"])
