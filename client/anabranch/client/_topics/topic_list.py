"""Which topics a consumer over many of them is for (`TopicSelection`), and the list of them that a
node tells by a snapshot and differences (`ToldTopics`). Only values, and pure decisions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from anabranch.core import names
from anabranch.core.errors import InvalidInputError
from anabranch.core.topic_lists.pattern_text import grouped
from anabranch.core.topic_lists.sorted_names import SortedNames, pieces_hash


class TopicSelection(msgspec.Struct, frozen=True):
    """The scalable topics of a namespace, those that are yet to come included.

    `namespace`: `tenant/namespace`. `pattern`: an expression of RE2 that the whole name of a topic
    within its namespace matches, as `orders-.*` matches `orders-eu`. `properties`: what a topic
    must have been created with, all of it. One of the two at most; the nodes hold topics against
    it. Raises InvalidInputError.
    """

    namespace: str
    pattern: str = ""
    properties: Mapping[str, str] = {}

    def __post_init__(self) -> None:
        names.parse_namespace(self.namespace)
        given: Any = self.properties
        if not isinstance(self.pattern, str):
            raise InvalidInputError(f"pattern must be a str: {type(self.pattern).__name__}")
        grouped(self.pattern)
        if not isinstance(given, Mapping) or not all(
            isinstance(part, str) for pair in given.items() for part in pair
        ):
            raise InvalidInputError(f"properties must be a mapping of str to str: {given!r}")
        if self.pattern and self.properties:
            raise InvalidInputError(
                "topics are selected by a pattern or by properties, not by both: give the topics "
                "that the pattern is to tell a property of their own"
            )

    @property
    def wire_pattern(self) -> str:
        """The pattern as nodes take it, of whole names."""
        return f"{re.escape(self.namespace)}/{grouped(self.pattern)}"

    def __str__(self) -> str:
        said = f"{self.namespace}/{self.pattern or '*'}"
        return said + "".join(f" {key}={value}" for key, value in sorted(self.properties.items()))


class ListChange(msgspec.Struct, frozen=True):
    """What a list has gained and lost, each sorted; names are `tenant/namespace/name`."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.removed)


class ToldTopics:
    """The newest list that a node has told of a selection, with its hash."""

    def __init__(self) -> None:
        self.topics: frozenset[str] = frozenset()  # as `tenant/namespace/name`
        self._told = SortedNames()  # as the node writes them
        self.is_known = False

    @property
    def hash(self) -> str:
        """Of what was told, as nodes compute it; "" when nothing was."""
        return pieces_hash(self._told.pieces) if self.is_known else ""

    def replace(self, told: Iterable[str]) -> ListChange:
        """Takes a whole list; what it lacks is gone."""
        self._told, self.is_known = SortedNames(told), True
        before, self.topics = self.topics, frozenset(map(bare_name, self._told))
        return ListChange(tuple(sorted(self.topics - before)), tuple(sorted(before - self.topics)))

    def differ(
        self, added: Iterable[str], removed: Iterable[str], told_hash: str = ""
    ) -> ListChange | None:
        """Takes a difference, what it removes first.

        None where it does not lead from what is known to a list of that hash: something was missed,
        and the list is to be asked for anew.
        """
        gone = [name for name in removed if self._told.discard(name)]
        come = [name for name in added if self._told.add(name)]
        if told_hash and told_hash != self.hash:
            self._told, self.is_known = SortedNames(), False
            return None
        lost = frozenset(map(bare_name, gone)) - frozenset(map(bare_name, come))
        found = frozenset(map(bare_name, come)) - self.topics
        self.topics = (self.topics - lost) | found
        return ListChange(tuple(sorted(found)), tuple(sorted(lost)))


def bare_name(told: str) -> str:
    """The name in a list without the domain before it.

    >>> bare_name("topic://public/default/orders")
    'public/default/orders'
    """
    return told.rpartition("://")[2]
