"""Regular expressions of operators, matched against whole names in linear time.

A policy comes from outside and is asked at every assignment, by every node. So it must not be able
to hang one, as an expression can with a matcher that tries one way after another, and all nodes
must agree on whether it is one, whatever Python they run on. Hence a subset of the usual syntax,
without whatever needs to look back or ahead, and a matcher of our own that keeps the set of all
positions of the expression at which the text may be (Glushkov's automaton, as bits of one number).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

import msgspec

from anabranch.core.errors import InvalidInputError

PATTERN_LENGTH_MAX: Final = 256
PARTS_MAX: Final = 1_000  # characters and groups, after repetitions are written out
JUMPS_MAX: Final = 50  # each is looked at for each character: a long name takes some milliseconds
_DEPTH_MAX: Final = 20  # of parentheses
_COUNT_DIGITS_MAX: Final = 4
_CLASSES: Final = {
    "d": (("0", "9"),),
    "w": (("0", "9"), ("A", "Z"), ("_", "_"), ("a", "z")),
    "s": (("\t", "\r"), (" ", " ")),
}
_QUANTIFIERS: Final = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_LEFT: Final = 1  # the bit of the position before the first character


class _Chars(msgspec.Struct, frozen=True):
    """One character of some ranges, or of none of them."""

    ranges: tuple[tuple[str, str], ...]
    negated: bool = False

    def takes(self, char: str) -> bool:
        return any(low <= char <= high for low, high in self.ranges) is not self.negated


class _Sequence(msgspec.Struct, frozen=True):
    parts: tuple[_Node, ...]


class _Choice(msgspec.Struct, frozen=True):
    ways: tuple[_Node, ...]


class _Repetition(msgspec.Struct, frozen=True):
    part: _Node
    least: int
    most: int | None


_Node = _Chars | _Sequence | _Choice | _Repetition
_ANY: Final = _Chars((), negated=True)
_NO_PART: Final = _Sequence(())


class Pattern(msgspec.Struct, frozen=True):
    """An expression, ready to match, by sets of its positions: p is bit p + 1, bit 0 comes before.

    `parts`: so many it has with its repetitions written out. `classes`: where each class of
    characters stands. What may follow what is told by the form it has. Of `steps` the next
    position may follow each, of a run each that is further on in it; a jump is from each position
    of its first set to each of its second.
    """

    parts: int
    classes: tuple[tuple[_Chars, int], ...]
    steps: int
    runs: tuple[int, ...]
    jumps: tuple[tuple[int, int], ...]
    ends: int  # the bits at which the whole text may end

    def matches(self, text: str) -> bool:
        """Whether it matches all of the text."""
        here = _LEFT
        known: dict[str, int] = {}  # by character, where it may stand
        for char in text:
            if char not in known:
                known[char] = _union(where for chars, where in self.classes if chars.takes(char))
            there = (here & self.steps) << 1
            for run in self.runs:
                begun = here & run
                there |= run & -((begun & -begun) << 1)
            for before, after in self.jumps:
                if before & here:
                    there |= after
            here = there & known[char]
            if not here:
                return False
        return bool(here & self.ends)


@lru_cache(maxsize=1_000)
def parse_pattern(text: str) -> Pattern:
    """An expression that an operator has given. Raises InvalidInputError, which says what of it
    is not possible.
    """
    if not text or len(text) > PATTERN_LENGTH_MAX:
        raise InvalidInputError(
            f"a pattern of {len(text)} characters is not possible: give 1 to {PATTERN_LENGTH_MAX}"
        )
    return _Automaton(text).pattern(_Parser(text).whole())


@lru_cache(maxsize=10_000)
def matches(text: str, name: str) -> bool:
    """Whether the expression matches the whole name; one that is none matches nothing."""
    try:
        return parse_pattern(text).matches(name)
    except InvalidInputError:
        return False


class _Parser:
    """From the text to a tree."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._end = len(text)
        # A match is of the whole text anyway.
        if text.startswith("^"):
            self._at = 1
        if text.endswith("$") and not _is_escaped(text, len(text) - 1):
            self._end -= 1

    def whole(self) -> _Node:
        node = self._choice(depth=0)
        if self._at < self._end:
            raise self._wrong("there is no ( before")
        return node

    def _wrong(self, what: str) -> InvalidInputError:
        rest = self._text[self._at :]
        place = f"{rest!r}" if rest else "its end"
        return InvalidInputError(
            f"pattern {self._text!r} is not possible: {what} {place}; use letters, . [] () | * + ? "
            "{m,n} \\d \\w \\s, and \\ before any other sign"
        )

    def _next(self) -> str:
        return self._text[self._at] if self._at < self._end else ""

    def _choice(self, depth: int) -> _Node:
        if depth > _DEPTH_MAX:
            raise self._wrong("there are too many parentheses in one another at")
        ways = [self._sequence(depth)]
        while self._next() == "|":
            self._at += 1
            ways.append(self._sequence(depth))
        return ways[0] if len(ways) == 1 else _Choice(tuple(ways))

    def _sequence(self, depth: int) -> _Node:
        parts: list[_Node] = []
        while self._next() not in ("", "|", ")"):
            part = self._part(depth)
            counts = self._counts()
            parts.append(part if counts is None else _repetition(part, *counts))
            if counts is not None and self._counts() is not None:
                raise self._wrong("a repetition is repeated before")
        return _Sequence(tuple(parts))

    def _part(self, depth: int) -> _Node:
        char = self._next()
        if char in "*+?{}^$]":
            raise self._wrong("there is nothing that takes a sign like that at")
        self._at += 1
        if char == ".":
            return _ANY
        if char == "[":
            return self._class()
        if char == "\\":
            return _Chars(self._escaped())
        if char != "(":
            return _Chars(((char, char),))
        if self._next() == "?":
            if self._text[self._at : self._at + 2] != "?:":
                raise self._wrong("only (?: may begin a group like that at")
            self._at += 2
        node = self._choice(depth + 1)
        if self._next() != ")":
            raise self._wrong("a ) is missing at")
        self._at += 1
        return node

    def _escaped(self) -> tuple[tuple[str, str], ...]:
        char = self._next()
        if char in _CLASSES:
            self._at += 1
            return _CLASSES[char]
        if not char.isascii() or not char or char.isalnum():
            raise self._wrong("\\ cannot stand before")
        self._at += 1
        return ((char, char),)

    def _class(self) -> _Chars:
        negated = self._next() == "^"
        self._at += negated
        ranges: list[tuple[str, str]] = []
        while self._next() != "]":
            ranges += self._members()
        if not ranges:
            raise self._wrong("[] holds nothing at")
        self._at += 1
        return _Chars(tuple(ranges), negated)

    def _members(self) -> tuple[tuple[str, str], ...]:
        """What comes next in a class: a character, a range, or what an escape stands for."""
        low = self._next()
        if low in ("", "["):
            raise self._wrong("a ] is missing, or a \\ before a [, at")
        self._at += 1
        if low == "\\":
            return self._escaped()
        following = self._text[self._at : self._at + 2]
        if len(following) < 2 or following[0] != "-" or following[1] == "]":
            return ((low, low),)
        high = following[1]
        if high in "[\\" or high < low:
            raise self._wrong("there is no range of characters at")
        self._at += 2
        return ((low, high),)

    def _counts(self) -> tuple[int, int | None] | None:
        """How often what was read may come, if that is said here."""
        char = self._next()
        if char in _QUANTIFIERS:
            self._at += 1
            return _QUANTIFIERS[char]
        if char != "{":
            return None
        close = self._text.find("}", self._at, self._end)
        least, comma, most = self._text[self._at + 1 : max(close, 0)].partition(",")
        if close < 0 or not _is_count(least) or (most and not _is_count(most)):
            raise self._wrong("there is no {m}, {m,} or {m,n} at")
        self._at = close + 1
        if not comma:
            return int(least), int(least)
        if most and int(most) < int(least):
            raise self._wrong("a repetition ends below where it begins, before")
        return int(least), int(most) if most else None


def _repetition(part: _Node, least: int, most: int | None) -> _Node:
    # However often nothing is repeated: written out it would take for ever.
    return _Repetition(part, least, most) if most != 0 and _has_chars(part) else _NO_PART


def _has_chars(node: _Node) -> bool:
    """Whether it holds any character; if not, it matches the empty text alone."""
    match node:
        case _Sequence():
            return any(map(_has_chars, node.parts))
        case _Choice():
            return any(map(_has_chars, node.ways))
    return True


def _is_escaped(text: str, at: int) -> bool:
    before = text[:at]
    return (len(before) - len(before.rstrip("\\"))) % 2 == 1


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _COUNT_DIGITS_MAX


class _Ends(msgspec.Struct, frozen=True):
    """Of a piece of the tree: the bits that it may begin and end with, and if it may be empty."""

    first: int
    last: int
    empty: bool


_NOTHING: Final = _Ends(0, 0, empty=True)


class _Automaton:
    """From the tree to the positions and what follows them."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._parts = 0
        self._positions = 0
        self._classes: dict[_Chars, int] = {}
        self._steps = 0
        self._runs: list[int] = []
        self._jumps: list[tuple[int, int]] = []

    def pattern(self, tree: _Node) -> Pattern:
        ends = self._add(tree)
        self._link(_LEFT, ends.first)
        last = ends.last | (_LEFT if ends.empty else 0)
        classes = tuple(self._classes.items())
        return Pattern(
            self._parts, classes, self._steps, tuple(self._runs), tuple(self._jumps), last
        )

    def _add(self, node: _Node) -> _Ends:
        self._parts += 1
        if self._parts > PARTS_MAX:
            raise self._too_much(f"{PARTS_MAX} characters and groups")
        match node:
            case _Chars():
                self._positions += 1
                bit = 1 << self._positions
                self._classes[node] = self._classes.get(node, 0) | bit
                return _Ends(bit, bit, empty=False)
            case _Sequence():
                ends = _NOTHING
                for part in node.parts:
                    ends = self._joined(ends, self._add(part))
                return ends
            case _Choice():
                ways = [self._add(way) for way in node.ways]
                return _Ends(
                    _union(way.first for way in ways),
                    _union(way.last for way in ways),
                    any(way.empty for way in ways),
                )
            case _Repetition():
                return self._repeated(node)

    def _repeated(self, node: _Repetition) -> _Ends:
        ends = _NOTHING
        for _ in range(node.least if node.most is not None else max(node.least - 1, 0)):
            ends = self._joined(ends, self._add(node.part))
        if node.most is None:  # the last one comes again and again
            part = self._add(node.part)
            self._link(part.last, part.first)
            return self._joined(ends, _Ends(part.first, part.last, part.empty or node.least == 0))
        left_out = node.most - node.least
        if isinstance(node.part, _Chars) and left_out > 1:
            run = _union(self._add(node.part).first for _ in range(left_out))
            self._runs.append(run)
            self._must_be_quick()
            return self._joined(ends, _Ends(run, run, empty=True))
        for _ in range(left_out):
            part = self._add(node.part)
            ends = self._joined(ends, _Ends(part.first, part.last, empty=True))
        return ends

    def _too_much(self, what: str) -> InvalidInputError:
        return InvalidInputError(
            f"pattern {self._text!r} is not possible: with its repetitions written out it has "
            f"more than {what}; repeat less"
        )

    def _must_be_quick(self) -> None:
        if len(self._jumps) + len(self._runs) > JUMPS_MAX:
            raise self._too_much(f"{JUMPS_MAX} ways to leave out, choose or repeat a part")

    def _joined(self, left: _Ends, right: _Ends) -> _Ends:
        self._link(left.last, right.first)
        return _Ends(
            left.first | (right.first if left.empty else 0),
            right.last | (left.last if right.empty else 0),
            left.empty and right.empty,
        )

    def _link(self, last: int, first: int) -> None:
        if not last or not first:
            return
        if first == last << 1 and not last & (last - 1):
            self._steps |= last
        else:
            self._jumps.append((last, first))
            self._must_be_quick()


def _union(sets: Iterable[int]) -> int:
    total = 0
    for one in sets:
        total |= one
    return total
