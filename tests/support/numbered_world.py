"""A producer's name in a world that knows only which numbers are stored where.

Processes of the name come one after the other, and each dies at any moment: in the middle of its
messages, of a mark, or of its look back. Segments split and merge meanwhile. Messages of a key are
stored in their order, others in any.
"""

from __future__ import annotations

from collections import Counter
from random import Random

from anabranch.client._producer import sequences
from anabranch.client._producer.sequences import Milestone, Place, Sequences, Stored
from anabranch.client._topics.layout import TopicLayout
from anabranch.core.entities.layout import SegmentLayout
from support.still_watch import layout_of

_NUMBERS = 60
_WHO = "the producer"


class NumberedWorld:
    """`logs`: the numbers in each bucket; None is a message of somebody else."""

    def __init__(self, random: Random) -> None:
        self.logs: dict[Place, list[int | None]] = {}
        self._random = random
        self._plain = SegmentLayout.initial(2, 4)
        self._commits: dict[tuple[str, int], tuple[int, str]] = {}
        self._numbers = Sequences(Milestone(0, sequences.NOTHING, {}), {})
        self._sent: list[int] = []  # not stored yet
        self._unheard: list[int] = []  # stored, and not settled yet
        self._next = 0
        self._version = 1
        self._begin()

    @property
    def layout(self) -> TopicLayout:
        return layout_of(self._plain, version=self._version)

    def step(self) -> None:
        steps = [self._send] * 6 + [self._store] * 6 + [self._settle] * 4 + [self._others]
        self._random.choice(
            [*steps, self._mark, self._keep, self._change, self._dies, self._leaves]
        )()

    def finish(self) -> None:
        """Stores what is left."""
        self._dies()
        while self._next < _NUMBERS:
            self._send()
        while self._sent:
            self._store()

    def stored(self) -> Counter[int]:
        return Counter(each for log in self.logs.values() for each in log if each is not None)

    # --- the process --------------------------------------------------------------------

    def _dies(self) -> None:
        self._sent, self._unheard = [], []
        for _ in range(self._random.randrange(1, 3)):  # a second one dies while it looks back
            self._begin()

    def _leaves(self) -> None:
        """Closes, after it has waited for its messages, or not."""
        if self._random.random() < 0.5:
            while self._sent or self._unheard:
                self._store()
                self._settle()
            self._numbers.mark(self._ends())
            if (due := self._numbers.due()) is not None:
                self._commits.update(due.commits(self.layout, sequences.CLOSED))
        else:
            self._commits.update(self._numbers.milestone.commits(self.layout, sequences.LEFT))
        self._sent, self._unheard = [], []
        self._begin()

    def _begin(self) -> None:
        milestone = sequences.read_milestone(self._commits, self.layout, _WHO)
        if milestone is not None and milestone.is_last:
            milestone = Milestone(milestone.number + 1, milestone.settled, self._ends())
        milestone = milestone or sequences.beginning(self.layout, _WHO)
        begins = sequences.starts(milestone, self.layout, _WHO)
        found = {
            number: Stored(*place, offset)
            for place, begin in begins.items()
            for offset, number in enumerate(self.logs.get(place, []))
            if offset >= begin and number is not None and number > milestone.settled
        }
        self._numbers = Sequences(milestone, found)
        self._next = self._numbers.settled + 1
        self._commit(milestone)

    def _send(self) -> None:
        if self._next < _NUMBERS:
            number = self._numbers.checked(self._next)
            self._next += 1
            if self._numbers.is_stored(number):
                self._numbers.skip(number)
            else:
                self._numbers.send(number)
                self._sent.append(number)

    def _store(self) -> None:
        """Kafka stores one of them, which is the oldest one of its key."""
        if not self._sent:
            return
        chosen = self._random.choice(self._sent)
        number = min(each for each in self._sent if _key(each) == _key(chosen))
        self._sent.remove(number)
        part, bucket = self.layout.place(_key(number))
        self.logs.setdefault((part.segment_id, bucket), []).append(number)
        self._unheard.append(number)

    def _settle(self) -> None:
        if self._unheard:
            number = self._unheard.pop(self._random.randrange(len(self._unheard)))
            self._numbers.settle(number, is_stored=True)

    def _mark(self) -> None:
        if self._numbers.is_marked:
            return
        ends = self._ends()
        for _ in range(self._random.randrange(3)):  # others write until the answer is there
            self._store()
        self._numbers.mark(ends)

    def _keep(self) -> None:
        due = self._numbers.due()
        if due is not None:
            self._commit(due)
            if self._random.random() < 0.9:  # else it dies before it knows
                self._numbers.kept(due)
        else:
            self._commit(self._numbers.milestone, is_whole=False)

    def _commit(self, milestone: Milestone, *, is_whole: bool = True) -> None:
        beat = self._random.randrange(2**32)
        self._commits.update(milestone.commits(self.layout, beat, is_whole=is_whole))

    # --- the topic ----------------------------------------------------------------------

    def _ends(self) -> dict[Place, int]:
        return {place: len(self.logs.get(place, [])) for place in self._open()}

    def _open(self) -> list[Place]:
        return sequences.open_places(self.layout)

    def _others(self) -> None:
        self.logs.setdefault(self._random.choice(self._open()), []).append(None)

    def _change(self) -> None:
        plain, random = self._plain, self._random
        active = sorted(plain.active, key=lambda part: part.start)
        if len(active) > 1 and random.random() < 0.5:
            turn = random.randrange(len(active) - 1)
            parents = [each.segment_id for each in active[turn : turn + 2]]
            children = plain.merge_children(*parents)
        else:
            parents = [random.choice(active).segment_id]
            children = plain.split_children(parents[0])
        ends = {
            each: tuple(
                len(self.logs.get((each, bucket), []))
                for bucket in range(plain.segments[each].buckets)
            )
            for each in parents
        }
        self._version += 1
        self._plain = plain.replaced(parents, children, ends, 0)


def _key(number: int) -> bytes:
    return b"key-%d" % (number % 7)


def run(seed: int, steps: int = 200) -> Counter[int]:
    """Returns how often each number is stored at the end."""
    world = NumberedWorld(Random(seed))
    for _ in range(steps):
        world.step()
    world.finish()
    return world.stored()


def wanted() -> Counter[int]:
    """Returns each number once."""
    return Counter(range(_NUMBERS))
