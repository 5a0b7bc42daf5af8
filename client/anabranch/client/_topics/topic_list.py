"""The topics of a consumer over many of them (`TopicSelection`), and the list of them that a node
tells by a snapshot and differences (`ToldTopics`).

The module holds values and pure decisions only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from anabranch.core import names
from anabranch.core.errors import InvalidInputError
from anabranch.core.topic_lists.pattern_text import grouped
from anabranch.core.topic_lists.topic_list import TopicList


class TopicSelection(msgspec.Struct, frozen=True):
    """The scalable topics of a namespace, including those that are created later.

    `namespace` is `tenant/namespace`. `pattern` is an RE2 expression for the whole name of a topic
    within its namespace: `orders-.*` matches `orders-eu`. `properties` selects the topics that were
    created with all of them. A selection has one of the two at most, and the nodes apply it. Raises
    InvalidInputError.
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
        """The pattern in the form for nodes, which matches full names."""
        return f"{re.escape(self.namespace)}/{grouped(self.pattern)}"

    def __str__(self) -> str:
        said = f"{self.namespace}/{self.pattern or '*'}"
        return said + "".join(f" {key}={value}" for key, value in sorted(self.properties.items()))


class ListChange(msgspec.Struct, frozen=True):
    """The names that a list has gained and lost, each sorted, as `tenant/namespace/name`."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.removed)


class ToldTopics:
    """The newest list that a node has told of a selection, with its hash."""

    def __init__(self) -> None:
        self.topics: frozenset[str] = frozenset()  # in the form `tenant/namespace/name`
        self._told = TopicList()  # in the node's form
        self.is_known = False

    @property
    def hash(self) -> str:
        """The hash of the told list, by the rule of the nodes. It is "" before a list was told."""
        return self._told.topics_hash if self.is_known else ""

    def replace(self, told: Iterable[str]) -> ListChange:
        """Takes a whole list and returns the change."""
        self._told, self.is_known = TopicList(told), True
        before, self.topics = self.topics, frozenset(map(bare_name, self._told.names))
        return ListChange(tuple(sorted(self.topics - before)), tuple(sorted(before - self.topics)))

    def differ(
        self, added: Iterable[str], removed: Iterable[str], told_hash: str = ""
    ) -> ListChange | None:
        """Takes a difference, first the names that it removes, and returns the change.

        Returns None if the result does not have that hash: a message was missed, and the caller
        must ask for the whole list.
        """
        gone = [name for name in removed if self._told.note(name, present=False)]
        come = [name for name in added if self._told.note(name, present=True)]
        if told_hash and told_hash != self.hash:
            self._told, self.is_known = TopicList(), False
            return None
        lost = frozenset(map(bare_name, gone)) - frozenset(map(bare_name, come))
        found = frozenset(map(bare_name, come)) - self.topics
        self.topics = (self.topics - lost) | found
        return ListChange(tuple(sorted(found)), tuple(sorted(lost)))


def bare_name(told: str) -> str:
    """Returns a name of a list without its domain.

    >>> bare_name("topic://public/default/orders")
    'public/default/orders'
    """
    return told.rpartition("://")[2]
