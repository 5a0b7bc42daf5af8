"""What must hold of lists of topics and of settings, seen with perfect sight."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING

from anabranch.broker.settings.overrides import EffectiveSettings, effective, oldest_first
from anabranch.client._topics.topic_list import TopicSelection
from anabranch.core.log.outcome import Folded
from anabranch.core.names import full_name
from anabranch.core.settings.override import OVERRIDES_PREFIX, SettingOverride
from anabranch.core.topic_lists.selection import Selection, Selector
from anabranch.core.topic_lists.sorted_names import topics_hash
from simulation.list_host import scaled
from simulation.list_plan import HOME
from simulation.process import Process
from simulation.scheduler import ViolationError

if TYPE_CHECKING:
    from simulation.list_host import ListHost
    from simulation.list_world import ListWorld

_Topics = dict[str, tuple[str, ...]]  # properties of what is open, by name


def selection_of(selection: TopicSelection) -> Selection:
    """What a client's selection is to a node."""
    pattern = selection.wire_pattern if selection.pattern else ""
    return Selection(pattern, tuple(sorted(selection.properties.items())))


class Answering:
    """The nodes of which one answers."""

    def __init__(self, processes: Sequence[Process]) -> None:
        self._processes = processes

    @property
    def lives(self) -> list[int]:
        """Another one after each start."""
        return [each.life for each in self._processes]

    @property
    def read(self) -> tuple[int, int]:
        """How far the one that is behind, and the one that is ahead, have read the log."""
        offsets = [each.replica.next_offset for each in self._processes]
        return min(offsets), max(offsets)


class ListChecks:
    """The history of the log's topics and overrides, and what everybody makes of them."""

    def __init__(self, world: ListWorld) -> None:
        self._world = world
        self._topics: list[tuple[int, _Topics]] = [(0, {})]  # from that next offset on
        self._overrides: list[tuple[int, dict[str, SettingOverride]]] = [(0, {})]
        self._effective: dict[tuple[str, int], EffectiveSettings] = {}
        self.taken = 0  # lists that were looked at

    # --- the log ------------------------------------------------------------------------

    def folded(self, folded: Folded) -> None:
        """The log has grown by this entry, which the truth has folded."""
        truth = self._world.cluster.checks.truth
        keys = [key for key, _ in folded.outcome.changes]
        if any(key.startswith("topic:") for key in keys):
            found: _Topics = {}
            for name in truth.topics(HOME):
                topic = truth.topic(name)
                if topic is not None and topic.is_open:
                    found[name] = topic.properties
            if found != self._topics[-1][1]:
                self._topics.append((truth.next_offset, found))
        if any(key.startswith(OVERRIDES_PREFIX) for key in keys):
            self._overrides.append((truth.next_offset, dict(truth.overrides())))

    def selected(self, selection: Selection) -> frozenset[str]:
        """The names of those topics that are open now."""
        return _names(self._topics[-1][1], selection)

    def hashes(self, selection: TopicSelection, first: int, last: int) -> set[str]:
        """Of the lists that a node could tell whose view was between these places of the log."""
        begins = [at for at, _ in self._topics]
        low, high = bisect_right(begins, first) - 1, bisect_right(begins, last)
        return {
            topics_hash(full_name(name) for name in _names(found, selection_of(selection)))
            for _, found in self._topics[low:high]
        }

    # --- settings -----------------------------------------------------------------------

    def configured(self, process: Process, host: ListHost) -> None:
        """At the same place of the log, the same settings."""
        offset = process.replica.next_offset
        place = bisect_right([at for at, _ in self._overrides], offset) - 1
        known = self._effective.get((process.name, place))
        if known is None:
            own = self._world.own_settings(process)
            known = effective(own, oldest_first(self._overrides[place][1]))
            self._effective[process.name, place] = known
        current = host.configuration.current
        if current.now != known.settings or current.ignored != known.ignored:
            raise ViolationError(f"{process.name} goes by other settings at {offset} than the log")
        if host.limiter_limits() != scaled(known.settings.topic_list_limits):
            raise ViolationError(f"the limiter of {process.name} has other limits at {offset}")

    # --- lists --------------------------------------------------------------------------

    def told(
        self, selection: TopicSelection, names: list[str], told_hash: str, first: int, last: int
    ) -> None:
        """A node answered with this list, of some moment since it was asked."""
        self.taken += 1
        if topics_hash(names) != told_hash:
            raise ViolationError(f"the hash of a list of {selection} is not that of its names")
        if told_hash not in self.hashes(selection, first, last):
            raise ViolationError(f"{selection} was never what a node told of it")


def _names(topics: _Topics, selection: Selection) -> frozenset[str]:
    selector = Selector(selection)
    return frozenset(
        name for name, properties in topics.items() if selector.takes(name, properties)
    )
