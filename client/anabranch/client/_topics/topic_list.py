"""Which topics a consumer over many of them is for (`TopicSelection`), and the list of them that a
node tells by a snapshot and differences (`TopicList`). Only values, and pure decisions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from anabranch.core import names
from anabranch.core.errors import InvalidInputError
from anabranch.core.policies import patterns


class TopicSelection(msgspec.Struct, frozen=True, kw_only=True):
    """The scalable topics of a namespace, those that are yet to come included.

    `namespace`: `tenant/namespace`. `pattern`: a regular expression, of the nodes' own dialect,
    that the whole name of a topic within its namespace matches; without one all do. `properties`:
    what a topic must have been created with, all of it. Raises InvalidInputError.

    >>> TopicSelection(namespace="public/default", pattern="orders-.*").matches(
    ...     "public/default/orders-eu")
    True
    """

    namespace: str
    pattern: str = ""
    properties: Mapping[str, str] = {}

    def __post_init__(self) -> None:
        names.parse_namespace(self.namespace)
        if not isinstance(self.pattern, str):
            raise InvalidInputError(f"pattern must be a str: {type(self.pattern).__name__}")
        if self.pattern:
            patterns.parse_pattern(self.pattern)
        given: Any = self.properties
        if not isinstance(given, Mapping) or not all(
            isinstance(part, str) for pair in given.items() for part in pair
        ):
            raise InvalidInputError(f"properties must be a mapping of str to str: {given!r}")

    def matches(self, topic: str) -> bool:
        """Whether a topic, `tenant/namespace/name`, is one of them, as far as its name tells."""
        prefix = f"{self.namespace}/"
        if not topic.startswith(prefix):
            return False
        return not self.pattern or bool(patterns.matches(self.pattern, topic[len(prefix) :]))

    def __str__(self) -> str:
        said = f"{self.namespace}/{self.pattern or '*'}"
        return said + "".join(f" {key}={value}" for key, value in sorted(self.properties.items()))


class ListChange(msgspec.Struct, frozen=True):
    """What a list has gained and lost, each sorted."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.removed)


class TopicList:
    """The newest list that a node has told of a selection; names are `tenant/namespace/name`.

    `told_hash` is the node's own of all that it has told; it is sent when the list is asked for
    again, by which the node sees whether anything has changed meanwhile.
    """

    def __init__(self, selection: TopicSelection) -> None:
        self.selection = selection
        self.topics: frozenset[str] = frozenset()
        self.told_hash = ""
        self._told: frozenset[str] = frozenset()  # by the node, as it writes them

    @property
    def told(self) -> frozenset[str]:
        """The list as the node writes it: what its hash is of."""
        return self._told

    def replace(self, told: Iterable[str], told_hash: str = "") -> ListChange:
        """Takes a whole list; what it lacks is gone."""
        told = frozenset(told)
        return self._take(told - self._told, self._told - told, told_hash)

    def differ(
        self, added: Iterable[str], removed: Iterable[str], told_hash: str = ""
    ) -> ListChange | None:
        """Takes a difference, what it removes first.

        None, and nothing is taken, where it does not fit what is known: something was missed, and
        the list is to be asked for anew.
        """
        added, removed = frozenset(added), frozenset(removed)
        if not removed <= self._told or not added.isdisjoint(self._told - removed):
            return None
        return self._take(added - removed, removed - added, told_hash)

    def _take(self, added: frozenset[str], removed: frozenset[str], told_hash: str) -> ListChange:
        self._told, self.told_hash = (self._told - removed) | added, told_hash
        come = frozenset(filter(self.selection.matches, map(bare_name, added)))
        gone = self.topics.intersection(map(bare_name, removed))
        self.topics = (self.topics - gone) | come
        return ListChange(tuple(sorted(come)), tuple(sorted(gone)))


def bare_name(told: str) -> str:
    """The name in a list without the domain before it.

    >>> bare_name("topic://public/default/orders")
    'public/default/orders'
    """
    return told.rpartition("://")[2]
