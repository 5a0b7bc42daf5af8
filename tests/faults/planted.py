"""Bugs for real processes: the faults' checks must find each of them by its name.

The product has no switch for any of this. A process is started through this file, which replaces
some functions of the product by broken ones and then runs what it was told to:

    python3 -m faults.planted NAME,... anabranch.cli node
    python3 -m faults.planted NAME,... faults.workload stream-1

Where the simulation looks for the same bug, it takes it from here. It uses nothing but the product,
for it runs in a node's image.
"""

from __future__ import annotations

import inspect
import math
import runpy
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from anabranch.broker.bundle_owners import Routes
from anabranch.client._consumer.core import ConsumerCore
from anabranch.client._consumer.holding import Holding
from anabranch.client._producer.partition_writer import PartitionWriter
from anabranch.client._producer.router import Router
from anabranch.client._producer.sender import Sender
from anabranch.client._queue.messages import ACCEPT, RELEASE, Delivery
from anabranch.core.hashing import segment_hash
from anabranch.core.log import conflicts
from anabranch.core.log.state_machine import Existence
from anabranch.core.log.verdicts import Verdict
from anabranch.core.ring import split_bundle_name
from anabranch.core.sessions.lease import Lease
from anabranch.core.subscriptions import assignor
from anabranch.core.subscriptions.handover import BucketsInUse, Instance

_FOR_EVER: Final = 1e9  # seconds, which a node can show

Put = Callable[[Any, str, Any], object]
"""As `setattr`; a test's `monkeypatch.setattr` puts all back at its end."""


class Part(Enum):
    """Whose process has the bug."""

    NODE = "nodes"
    PRODUCER = "producers"
    CONSUMER = "consumers"


@dataclass(frozen=True, slots=True)
class Replacement:
    """`attribute` of `owner`, which is there now, gives way to what `broken` makes of it."""

    owner: Any
    attribute: str
    broken: Callable[[Any], Any]

    @property
    def sound(self) -> Any:
        """What is replaced. Raises LookupError once the product does not have it any more."""
        try:
            return inspect.getattr_static(self.owner, self.attribute)
        except AttributeError:
            raise LookupError(
                f"{self.owner.__name__} has no {self.attribute} any more: find what does its work "
                "now, and plant the bug there"
            ) from None


@dataclass(frozen=True, slots=True)
class Bug:
    """`what`: in a sentence, what the product does then."""

    name: str
    part: Part
    what: str
    replaced: tuple[Replacement, ...]

    def plant(self, put: Put = setattr) -> None:
        """Breaks the product in this process. Raises LookupError where it cannot."""
        broken = [(each, each.broken(each.sound)) for each in self.replaced]
        for each, instead in broken:
            put(each.owner, each.attribute, instead)


BUGS: Final[dict[str, Bug]] = {}
"""All of them by name."""


def _bug(part: Part, *places: tuple[Any, str]) -> Callable[[Callable[..., Any]], Bug]:
    """A bug of one function: of `places` each is replaced by what the function makes of it."""

    def made(broken: Callable[..., Any]) -> Bug:
        name = broken.__name__.replace("_", "-")
        what = " ".join((broken.__doc__ or "").split())
        replaced = tuple(Replacement(owner, attribute, broken) for owner, attribute in places)
        found = BUGS[name] = Bug(name, part, what, replaced)
        return found

    return made


# --- nodes ------------------------------------------------------------------------------------


@_bug(Part.NODE, (Lease, "begin"), (Lease, "end"))
def lease_not_looked_at(sound: object) -> object:
    """A node that has opened a session acts as an owner for ever, in touch with Kafka or not."""

    def for_ever(self: Lease, sent_at: float = 0.0) -> None:
        self._until = _FOR_EVER

    return for_ever


@_bug(Part.NODE, (Routes, "changed"))
def routes_kept(sound: Callable[..., None]) -> object:
    """Look-ups name the first owner that a bundle had, whoever owns it since."""

    def has_owner(routes: Routes, key: str) -> bool:
        ring = routes._rings.get(key.rpartition("/")[0])
        if ring is None:
            return False
        _, part = split_bundle_name(key)
        return ring.owners[bisect_right(ring.lowers, part.lower) - 1] != ""

    def changed(self: Routes, changes: Iterable[tuple[str, Any]]) -> None:
        sound(self, [each for each in changes if not has_owner(self, each[0])])

    return changed


@_bug(Part.NODE, (conflicts, "end_of_change"))
def last_wins(sound: Callable[..., Any]) -> object:
    """Of two records that make the same tenant or policy the later one counts, too."""

    def end(*arguments: Any) -> Existence | Verdict:
        found: Existence | Verdict = sound(*arguments)
        return Existence.PRESENT if found is Verdict.STALE_VERSION else found

    return end


@_bug(Part.NODE, (assignor, "assignable"))
def child_opened_early(sound: object) -> object:
    """Segments are given out before what is above them is drained."""

    def everything(layout: Any, drained: Iterable[int]) -> list[Any]:
        done = frozenset(drained)
        parts = (part for part in layout.segments.values() if part.segment_id not in done)
        return sorted(parts, key=lambda part: (part.start, part.end, part.segment_id))

    return everything


@_bug(Part.NODE, (BucketsInUse, "allows"))
def granted_unreleased(sound: object) -> object:
    """A bucket is granted to its next consumer while the former one may be serving it."""

    def allows(self: BucketsInUse, bucket: Any, asker: Instance | None) -> bool:
        return True

    return allows


# --- producers --------------------------------------------------------------------------------


@_bug(Part.PRODUCER, (Router, "_place_at"))
def begins_in_child(sound: Callable[..., Any]) -> object:
    """A producer that begins while a segment is being sealed begins in its child."""

    def eager(self: Router[PartitionWriter], key: str | bytes, position: int) -> tuple[Any, int]:
        part, bucket = sound(self, key, position)
        used = {(partition.segment.segment_id, partition.bucket) for partition in self.writers()}
        child = self.layout.child_at(segment_hash(position))
        is_leaving = self.layout.is_leaving(part.segment_id)
        if is_leaving and child is not None and (part.segment_id, bucket) not in used:
            return child, child.bucket(key, position)
        return part, bucket

    return eager


@_bug(Part.PRODUCER, (Router, "update"))
def moves_when_announced(sound: Callable[..., Any]) -> object:
    """A producer goes to the child when sealing is announced, while others write to the parent."""

    def hasty(self: Router[PartitionWriter], layout: Any) -> list[PartitionWriter]:
        begun: list[PartitionWriter] = sound(self, layout)
        for partition in self.writers():
            if layout.is_leaving(partition.segment.segment_id):
                self.close(partition)
        return begun

    return hasty


@_bug(Part.PRODUCER, (PartitionWriter, "unanswered"))
def doubt_forgotten(sound: Callable[..., Any]) -> object:
    """What was tried more than once and is refused at last is sent again, stored or not."""

    def certain(self: PartitionWriter, in_doubt: bool) -> None:
        sound(self, in_doubt=False)

    return certain


@_bug(Part.PRODUCER, (Sender, "resolved"))
def doubt_taken_for_stored(sound: Callable[..., Any]) -> object:
    """What is in doubt is acknowledged, whatever the sealed partition holds."""

    def hopeful(self: Sender[PartitionWriter], writer: PartitionWriter, is_stored: bool) -> None:
        sound(self, writer, is_stored=True)

    return hopeful


# --- consumers --------------------------------------------------------------------------------


@_bug(Part.CONSUMER, (Holding, "drained"))
def drained_early(sound: object) -> object:
    """A sealed segment is called drained once anything of it was delivered."""
    return property(lambda self: self.end_offset is not None and self.delivered is not None)


@_bug(Part.CONSUMER, (ConsumerCore, "commits"))
def committed_ahead(sound: Callable[..., Any]) -> object:
    """What is committed is one message further than what was acknowledged."""

    def commits(self: ConsumerCore, now: float) -> list[tuple[Holding, int]]:
        return [(holding, end + 1) for holding, end in sound(self, now)]

    return commits


@_bug(Part.CONSUMER, (Holding, "deliver"))
def delivered_taken_for_stored(sound: Callable[..., Any]) -> object:
    """What a checkpoint consumer was given counts as saved, before it is."""

    def deliver(self: Holding, end: int) -> None:
        sound(self, end)
        self.acknowledge(end)
        self.commit(end)

    return deliver


@_bug(Part.CONSUMER, (Delivery, "end"))
def unsettled_accepted(sound: Callable[..., Any]) -> object:
    """What a queue's consumer has not settled in time is accepted, and comes no more."""

    def end(self: Delivery) -> tuple[Sequence[int], Mapping[int, float]]:
        answers, due = sound(self)
        return [ACCEPT if answer == RELEASE else answer for answer in answers], due

    return end


@_bug(Part.CONSUMER, (ConsumerCore, "_lapses_at"))
def serves_unanswered(sound: object) -> object:
    """A consumer that no controller answers serves on, whoever has its buckets since."""
    return lambda self: math.inf


# --- a process with one of them -----------------------------------------------------------------


def main(names: str, module: str, *arguments: str) -> None:
    """Plants the bugs, and runs the module as it would have been run without them."""
    for name in names.split(","):
        BUGS[name].plant()
    sys.argv[1:] = arguments
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
