"""A topic's DAG of segments as text: the hash ring across, epochs downwards.

Each segment is a box. It is as wide as its part of the ring, and reaches from the epoch that made
it to the one that sealed it. So a split is a box with two below it, and a merge is two with one
below. Boxes that touch the double line at the foot take messages now. A ring of many segments is
drawn in bands, one below the other. Boxes show how segments follow each other; the rows of
`describe` tell their content.
"""

from __future__ import annotations

import textwrap
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

import msgspec

from anabranch.core.entities.layout import SegmentLayout
from anabranch.core.entities.segment import SegmentInfo
from anabranch.core.hashing import RING16

COLUMNS: Final = 80
LANES_MAX: Final = 512  # beyond that a picture helps nobody; the rows and --json have them all
_MARGIN: Final = 7  # of the epochs
_HEX: Final = 4
_UP, _DOWN, _LEFT, _RIGHT = 1, 2, 4, 8
_LINES: Final = " ╵╷│╴┘┐┤╶└┌├─┴┬┼"  # by the sum of the directions a character has
_FOOT: Final = {_LEFT | _RIGHT: "═", _UP | _RIGHT: "╘", _UP | _LEFT: "╛"}
_FOOT_JOINT: Final = "╧"
_PLAIN: Final = str.maketrans("╵╷│╴┘┐┤╶└┌├─┴┬┼═╘╛╧", "||| +++ +++-+++=+++")


class _Box(msgspec.Struct, frozen=True):
    """A segment's place in the drawing: characters across, rows down, borders included."""

    part: SegmentInfo
    left: int
    right: int
    top: int
    bottom: int


def draw(layout: SegmentLayout, columns: int = COLUMNS) -> str:
    """The picture, lines of at most `columns` characters; "" for more than LANES_MAX lanes."""
    parts = list(layout.segments.values())
    edges = _edges(parts)
    if not parts or len(edges) > LANES_MAX:
        return ""
    wide = 1 + max(len(str(part.segment_id)) for part in parts)
    each = max(1, (columns - _MARGIN - 1) // wide)
    count = -(-(len(edges) - 1) // each)
    size = -(-(len(edges) - 1) // count)  # bands alike, instead of a narrow last one
    bands = [edges[at : at + size + 1] for at in range(0, len(edges) - 1, size)]
    return "\n\n".join(_band(parts, band, columns - _MARGIN, wide) for band in bands)


def fitting(picture: str, encoding: str | None) -> str:
    """The picture, in ASCII where the terminal's encoding has nothing else."""
    try:
        picture.encode(encoding or "ascii")
    except UnicodeEncodeError:
        return picture.translate(_PLAIN)
    return picture


HEAD: Final = ("SEGMENT", "RANGE", "STATE", "EPOCHS", "FROM", "INTO", "BUCKETS", "END OFFSETS")
_OFFSETS_COLUMNS: Final = 18


def describe(layout: SegmentLayout) -> list[tuple[str, ...]]:
    """Returns rows under HEAD, by id, for which the picture has no room.

    Many end offsets take more rows.
    """
    rows: list[tuple[str, ...]] = []
    for part in sorted(layout.segments.values(), key=lambda part: part.segment_id):
        first, *more = textwrap.wrap(_listed(part.end_offsets, ", "), _OFFSETS_COLUMNS)
        rows.append(
            (
                str(part.segment_id),
                f"{part.start:04x}-{part.end:04x}",
                part.state.name,
                f"{part.created_at_epoch}-" + ("" if part.is_active else str(part.sealed_at_epoch)),
                _listed(part.parent_ids),
                _listed(part.child_ids),
                str(part.buckets),
                first,
            )
        )
        rows += [("",) * (len(HEAD) - 1) + (line,) for line in more]
    return rows


def _listed(numbers: Iterable[int], between: str = ",") -> str:
    return between.join(str(number) for number in numbers) or "-"


def _edges(parts: Iterable[SegmentInfo]) -> list[int]:
    """Every place of the ring where some segment starts or ends; a lane lies between two."""
    found = {0, RING16}
    for part in parts:
        found |= {part.start, part.end + 1}
    return sorted(found)


def _band(parts: Sequence[SegmentInfo], edges: Sequence[int], width: int, wide: int) -> str:
    """A part of the ring."""
    shown = [part for part in parts if part.start < edges[-1] and part.end >= edges[0]]
    places = _places(edges, width - 1, wide)
    epochs = sorted(
        {part.created_at_epoch for part in shown}
        | {part.sealed_at_epoch for part in shown if not part.is_active}
    )
    foot = 2 * len(epochs)
    boxes = [_box(part, edges, places, epochs, foot) for part in shown]
    grid = [[0] * (places[-1] + 1) for _ in range(foot + 1)]
    for box in boxes:
        _outline(grid, box)
    lines = [[_character(mask, row == foot) for mask in grid[row]] for row in range(foot + 1)]
    for box in boxes:
        _label(lines[box.top + 1], box)
    margin = [f"{epoch:>{_MARGIN - 2}}  " for epoch in epochs]
    text = [_ruler(edges, places)]
    for row, line in enumerate(lines):
        named = margin[row // 2] if row % 2 == 0 and row < foot else " " * _MARGIN
        text.append((named if row < foot else f"{'now':>{_MARGIN - 2}}  ") + "".join(line))
    return "\n".join(line.rstrip() for line in text)


def _places(edges: Sequence[int], width: int, wide: int) -> list[int]:
    """The column of each edge: lanes have `wide` columns, and the rest by their share of the ring.

    >>> _places([0, 0x4000, 0x8000, 0x10000], 40, 2)
    [0, 10, 21, 40]
    """
    lanes = len(edges) - 1
    spare, span = width - wide * lanes, edges[-1] - edges[0]
    return [wide * number + spare * (edge - edges[0]) // span for number, edge in enumerate(edges)]


def _box(
    part: SegmentInfo,
    edges: Sequence[int],
    places: Sequence[int],
    epochs: Sequence[int],
    foot: int,
) -> _Box:
    left = places[max(0, bisect_right(edges, part.start) - 1)]
    right = places[min(len(edges) - 1, bisect_left(edges, part.end + 1))]
    top = 2 * bisect_left(epochs, part.created_at_epoch)
    bottom = foot if part.is_active else 2 * bisect_left(epochs, part.sealed_at_epoch)
    return _Box(part, left, right, top, bottom)


def _outline(grid: list[list[int]], box: _Box) -> None:
    for row in (box.top, box.bottom):
        for column in range(box.left, box.right):
            grid[row][column] |= _RIGHT
            grid[row][column + 1] |= _LEFT
    for column in (box.left, box.right):
        for row in range(box.top, box.bottom):
            grid[row][column] |= _DOWN
            grid[row + 1][column] |= _UP


def _character(mask: int, is_foot: bool) -> str:
    if not is_foot or not mask:
        return _LINES[mask]
    return _FOOT.get(mask, _FOOT_JOINT)


def _label(line: list[str], box: _Box) -> None:
    """The id, and the buckets where there is room for them."""
    room = box.right - box.left - 1
    name, buckets = str(box.part.segment_id), box.part.buckets
    long = f" {name}  {buckets} bucket{'' if buckets == 1 else 's'}"
    text = long if len(long) <= room else f" {name}" if len(name) < room else name
    line[box.left + 1 : box.left + 1 + len(text)] = text


def _ruler(edges: Sequence[int], places: Sequence[int]) -> str:
    """The ring's positions where there is room for them: starts above their edge, then the end."""
    last = f"{edges[-1] - 1:04x}"
    line = [" "] * (places[-1] + 1)
    line[places[-1] + 1 - _HEX :] = last
    free, end = 0, places[-1] - _HEX
    for edge, (place, _) in zip(edges, pairwise(places), strict=False):
        if place >= free and place + _HEX <= end:
            line[place : place + _HEX] = f"{edge:04x}"
            free = place + _HEX + 1
    return f"{'epoch':>{_MARGIN - 2}}  " + "".join(line)
