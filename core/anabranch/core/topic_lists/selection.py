"""The choice of a namespace's topics: a pattern of their names, or some of their properties.

Patterns come from strangers, so the size of a pattern's program and of its text is bounded.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any, Final

import msgspec

from anabranch.core.entities.topic import properties_dict
from anabranch.core.errors import InvalidInputError
from anabranch.core.expressions import STEPS_MAX, compiled
from anabranch.core.topic_lists.pattern_text import PatternError as PatternError

PATTERN_LENGTH_MAX: Final = 512
FILTERS_MAX: Final = 64
FILTER_LENGTH_MAX: Final = 65_536
_SCHEME: Final = "://"
# The longer ones first: one ends like another.
_DOMAINS: Final = ("non-persistent", "persistent", "topic")


class Selection(msgspec.Struct, frozen=True):
    """The criteria of a request. Equal ones have equal lists."""

    pattern: str = ""  # "": any name
    properties: tuple[tuple[str, str], ...] = ()  # name and value, by name; all must hold

    @property
    def is_all(self) -> bool:
        """Tells whether it leaves nothing out."""
        return not self.pattern and not self.properties

    @property
    def length(self) -> int:
        """Its characters, which do not depend on the number of topics."""
        return len(self.pattern) + sum(len(k) + len(v) for k, v in self.properties)


ALL: Final = Selection()


def by_pattern(text: str) -> Selection:
    """Those whose whole name, without its domain, matches. Raises PatternError."""
    bare = _without_domain(text)
    return ALL if bare == ".*" else Selection(pattern=bare)


def by_properties(wanted: Iterable[tuple[str, str]]) -> Selection:
    """Those that have all of these properties.

    Raises InvalidInputError for too many, and for two values of one: no topic has both.
    """
    pairs = sorted(set(wanted))
    check_filters(len(pairs))
    length = max((len(part) for pair in pairs for part in pair), default=0)
    if length > FILTER_LENGTH_MAX:
        raise InvalidInputError(
            f"a property filter of {length} characters: no property is longer than "
            f"{FILTER_LENGTH_MAX}"
        )
    for (name, value), (other_name, other) in pairwise(pairs):
        if name == other_name:
            raise InvalidInputError(
                f"property {name!a:.200} is to be {value!a:.200} and {other!a:.200}: a topic has "
                "one value of it; ask for one"
            )
    return Selection(properties=tuple(pairs))


def check_filters(count: int) -> None:
    """Raises InvalidInputError for more than are looked at."""
    if count > FILTERS_MAX:
        raise InvalidInputError(f"{count} property filters: give at most {FILTERS_MAX}")


class Selector:
    """A selection that topics can be held against. Raises PatternError."""

    def __init__(self, selection: Selection) -> None:
        self._pattern = _compiled(selection.pattern) if selection.pattern else None
        self._properties = selection.properties

    def takes(self, name: str, properties: tuple[str, ...] = ()) -> bool:
        """Tells whether it selects the topic `tenant/namespace/name` with these properties."""
        if self._pattern is not None and self._pattern.fullmatch(name) is None:
            return False
        if not self._properties:
            return True
        has = properties_dict(properties)
        return all(has.get(key) == value for key, value in self._properties)


def _without_domain(text: str) -> str:
    """The pattern without the domain that it may name, as Pulsar's `removeTopicDomainScheme`."""
    if not text:
        raise PatternError("the topics' pattern is empty; .* is that of all")
    if len(text) > PATTERN_LENGTH_MAX:
        raise PatternError(
            f"the topics' pattern {text[:40]!r}... has {len(text)} characters: at most "
            f"{PATTERN_LENGTH_MAX} are looked at; use a shorter one, or several"
        )
    before, sep, rest = text.partition(_SCHEME)
    if not sep:
        return text
    for domain in _DOMAINS:
        if before.endswith(domain):
            return before[: -len(domain)] + rest
    raise PatternError(
        f"the topics' pattern {text!r} names no domain before ://; write topic:// or leave it out"
    )


def _compiled(bare: str) -> Any:
    try:
        pattern = compiled(bare)
    except ValueError as error:
        raise PatternError(
            f"the topics' pattern {bare!r} is none of RE2's: {error}; it is matched against the "
            "whole name without its domain, tenant/namespace/name"
        ) from None
    size = pattern.programsize
    if size > STEPS_MAX:
        raise PatternError(
            f"the topics' pattern {bare!r} takes {size} steps: at most {STEPS_MAX} are "
            "taken; use smaller repetitions"
        )
    return pattern
