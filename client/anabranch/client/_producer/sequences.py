"""The numbers of a producer with a name: which ones are stored, and where to look for them. Pure.

A *milestone* says that all numbers up to `settled` are settled, and where each bucket ended then.
All higher numbers are stored behind these ends, or in descendants of these segments. So the
successor of a producer that was killed reads from there, and knows exactly which ones are stored.

The highest number that is stored says nothing about lower ones: keys go to different buckets, and
a bucket of a merged segment may have a number from a parent that moved first.

A milestone is *marked* when the ends of all buckets are known, for the last number that was sent by
then. It is true once all numbers up to that one are settled, and stays true for ever.
"""

from __future__ import annotations

import hashlib
import struct
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from anabranch.client._errors import DuplicatesUnknownError
from anabranch.client._topics.layout import Segment, TopicLayout
from anabranch.core.errors import InvalidInputError

Place = tuple[int, int]  # segment and bucket
Commits = Mapping[tuple[str, int], tuple[int, str]]  # Kafka's partition: offset and metadata

HEADER: Final = "ab"  # of each message of a producer with a name
SEQUENCE_MAX: Final = 2**63 - 1
NOTHING: Final = -1  # is settled
_HEADER: Final = struct.Struct(">BQq")
_FORM: Final = 1
_TEXT: Final = "abn1"  # the metadata of a milestone's commits begins so
CLOSED: Final = "closed"  # instead of a beat: its process has left, and all is settled
LEFT: Final = "left"  # its process has left


class Stored(msgspec.Struct, frozen=True, gc=False):
    """The place of a stored number."""

    segment_id: int
    bucket: int
    offset: int


class Milestone(msgspec.Struct, frozen=True):
    """`number` rises with each milestone of a name. `is_last`: no higher number was ever stored."""

    number: int
    settled: int
    ends: Mapping[Place, int]
    is_last: bool = False

    def commits(self, layout: TopicLayout, state: str | int, *, is_whole: bool = True) -> Commits:
        """Returns its commits, or only one. `state`: CLOSED, LEFT, or a number that is new."""
        said = f"{_TEXT} {self.number} {len(self.ends)} {self.settled} {layout.version} {state}"
        known = _known(layout)
        found: dict[tuple[str, int], tuple[int, str]] = {}
        for (segment_id, bucket), end in self.ends.items():
            if segment_id in known and (is_whole or not found):  # nobody relies on a pruned one
                found[known[segment_id].kafka_topic, bucket] = (end, said)
        return found


def name_hash(layout: TopicLayout, name: str) -> int:
    """Returns the number by which messages show the name, which differs in each topic."""
    text = f"{layout.topic}\0{layout.incarnation}\0{name}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def header(name: int, sequence: int) -> tuple[str, bytes]:
    """Returns the header of a message."""
    return HEADER, _HEADER.pack(_FORM, name, sequence)


def sequence_of(headers: Iterable[tuple[str, Any]], name: int) -> int | None:
    """Returns the number that a producer of this name gave the message."""
    for key, value in headers:
        if key == HEADER and value is not None and len(value) == _HEADER.size:
            form, named, sequence = _HEADER.unpack(value)
            if form == _FORM and named == name:
                return int(sequence)
    return None


class _Said(NamedTuple):
    """The metadata of a commit."""

    number: int
    places: int
    settled: int
    version: int
    state: str


def _said(text: str) -> _Said | None:
    form, *words = text.split() or [""]
    if form != _TEXT or len(words) != len(_Said._fields):
        return None
    try:
        number, places, settled, version = map(int, words[:-1])
    except ValueError:
        return None
    return _Said(number, places, settled, version, words[-1])


def is_free(commits: Commits) -> bool:
    """Tells whether the last process of the name has left, or there was none."""
    return all(each.state in (CLOSED, LEFT) for each in _newest(commits))


def _newest(commits: Commits) -> list[_Said]:
    said = [each for _, text in commits.values() if (each := _said(text)) is not None]
    newest = max((each.number for each in said), default=0)
    return [each for each in said if each.number == newest]


def version_of(commits: Commits) -> int:
    """Returns the newest version of the layout that a process of the name may have written by."""
    said = (_said(text) for _, text in commits.values())
    return max((each.version for each in said if each is not None), default=0)


def read_milestone(commits: Commits, layout: TopicLayout, who: str) -> Milestone | None:
    """Returns the newest milestone of which nothing is missing, None if nothing is committed.

    Of one whose process has closed, nothing is needed but its number. Raises
    DuplicatesUnknownError.
    """
    newest = _newest(commits)
    if newest and all(each.state == CLOSED for each in newest):
        return Milestone(newest[0].number, newest[0].settled, {}, is_last=True)
    segments: dict[str, int] = {}
    for segment_id, part in sorted(_known(layout).items()):
        segments[part.kafka_topic] = segment_id  # the newest one that lies in that Kafka topic
    found: dict[tuple[int, int, int], dict[Place, int]] = {}
    for (topic, bucket), (offset, text) in commits.items():
        said = _said(text)
        if said is not None and topic in segments:
            found.setdefault(said[:3], {})[segments[topic], bucket] = offset
    for (number, count, settled), ends in sorted(found.items(), reverse=True):
        if len(ends) == count:
            return Milestone(number, settled, ends)
    if commits:
        raise unknown(who, "a part of what Kafka kept of it is gone")
    return None


def beginning(layout: TopicLayout, who: str) -> Milestone:
    """Returns the milestone that covers all that was ever stored. Raises DuplicatesUnknownError if
    a segment was pruned.
    """
    if sorted(layout.segments) != list(range(len(layout.segments))):
        raise unknown(who, "Kafka kept nothing of it and segments were pruned", is_lost=True)
    roots = [part for part in layout.segments.values() if not part.info.parent_ids]
    return Milestone(0, NOTHING, {place: at for part in roots for place, at in firsts(part)})


def firsts(part: Segment) -> list[tuple[Place, int]]:
    """Returns where each bucket of the segment begins."""
    buckets = range(part.info.buckets)
    return [((part.segment_id, each), part.info.first_offset(each)) for each in buckets]


def open_places(layout: TopicLayout) -> list[Place]:
    """Returns the buckets that may take messages from now on."""
    parts = [*layout.active, *layout.children]
    return [place for part in parts for place, _ in firsts(part)]


def starts(milestone: Milestone, layout: TopicLayout, who: str) -> dict[Place, int]:
    """Returns the offsets from which a successor reads: the milestone's, and all of descendants.

    Raises DuplicatesUnknownError if a segment among them is not there any more.
    """
    known = _known(layout)
    children: dict[int, list[int]] = {}
    for part in known.values():
        for parent in part.info.parent_ids:
            children.setdefault(parent, []).append(part.segment_id)
    found = dict(milestone.ends)
    seen = {segment_id for segment_id, _ in found}
    left = list(seen)
    while left:
        segment_id = left.pop()
        if segment_id not in known:
            raise unknown(who, f"its segment {segment_id} was pruned")
        for child in {*known[segment_id].info.child_ids, *children.get(segment_id, ())} - seen:
            seen.add(child)
            left.append(child)
            found.update(firsts(known[child]) if child in known else ())
    if lost := [part.segment_id for part in layout.active if part.segment_id not in seen]:
        raise unknown(who, f"nothing tells where it began in segment {lost[0]}")
    return found


def unknown(who: str, why: str, *, is_lost: bool = False) -> DuplicatesUnknownError:
    """Returns the error for a name of which it is not known what it has stored.

    `is_lost`: Kafka has nothing of the name, so that it may be a new one.
    """
    remedy = "; or say new_name=True if nothing was ever sent under this one" if is_lost else ""
    return DuplicatesUnknownError(
        f"it is not known which messages {who} has stored, because {why}: begin under a new name, "
        f"at the first number that you find not to be stored{remedy}"
    )


def _known(layout: TopicLayout) -> dict[int, Segment]:
    return {**{each.segment_id: each for each in layout.children}, **layout.segments}


class Sequences:
    """The numbers of one process of a name, which ascend.

    `stored` has the places of numbers above the settled one that former processes have stored.
    """

    def __init__(self, milestone: Milestone, stored: Mapping[int, Stored]) -> None:
        self.milestone = milestone  # the last one that Kafka has
        self.failed: int | None = None  # the first number that was given up
        self._stored = stored
        self._stored_max = max(stored, default=NOTHING)
        self._last = NOTHING
        self._open: deque[int] = deque()
        self._done: set[int] = set()  # those of the open ones that are settled
        self._marked: Milestone | None = None
        self.since_mark = 0  # numbers that were sent since the last mark

    @property
    def settled(self) -> int:
        """The number up to which all that was sent is stored, NOTHING at first."""
        reached = self._open[0] - 1 if self._open else self._last
        return max(self.milestone.settled, reached)

    def checked(self, sequence: Any) -> int:
        """Returns the next number. Raises InvalidInputError if it may not be that."""
        if not isinstance(sequence, int) or isinstance(sequence, bool):
            raise InvalidInputError(
                f"sequence is a number, which a producer with a name needs: {sequence!r}"
            )
        if not self._last < sequence <= SEQUENCE_MAX:
            raise InvalidInputError(
                f"sequence {sequence} does not ascend: it must be from {self._last + 1} to "
                f"{SEQUENCE_MAX}"
            )
        return sequence

    def is_stored(self, sequence: int) -> bool:
        """Tells whether a former process has stored that number."""
        return sequence <= self.milestone.settled or sequence in self._stored

    def skip(self, sequence: int) -> Stored | None:
        """Takes the next number, which is stored. Returns its place, if that is known."""
        self._last = sequence
        return self._stored.get(sequence)

    def send(self, sequence: int) -> None:
        """Takes the next number, which is sent."""
        self._last = sequence
        self._open.append(sequence)
        self.since_mark += 1

    def settle(self, sequence: int, *, is_stored: bool) -> None:
        """Notes what became of a number. One that is not stored for certain stays open for ever."""
        if not is_stored:
            self.failed = sequence if self.failed is None else self.failed
            return
        self._done.add(sequence)
        while self._open and self._open[0] in self._done:
            self._done.remove(self._open.popleft())

    def mark(self, ends: Mapping[Place, int]) -> None:
        """Notes where the buckets ended after the last number was sent, or before.

        Numbers that former processes have stored lie before these ends. So it counts only once the
        application is beyond them.
        """
        upto = max(self._last, self.milestone.settled)
        if upto >= self._stored_max:
            number = (self._marked or self.milestone).number + 1  # Kafka may have the former mark
            self._marked = Milestone(number, upto, ends)
            self.since_mark = 0

    @property
    def is_marked(self) -> bool:
        """True while a mark waits for its numbers, or to be kept. Nothing older may be committed
        meanwhile in parts, once it is due: Kafka may have it.
        """
        return self._marked is not None

    def due(self) -> Milestone | None:
        """Returns the marked milestone once it is true."""
        marked = self._marked
        return marked if marked is not None and marked.settled <= self.settled else None

    def kept(self, milestone: Milestone) -> None:
        """Notes that Kafka has the milestone."""
        self.milestone, self._marked = milestone, None
