"""Names in order, in pieces that are shared and never changed, and the hash that clients compare.

One object of bytes holds a thousand names: 100,000 names take a tenth of the memory of as many
strings. A change makes one piece anew; a reader of the earlier pieces still has them whole.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import google_crc32c

_PIECE_NAMES_MAX: Final = 1_024
_COMMA: Final = b","  # no name has one


def topics_hash(names: Iterable[str]) -> str:
    """Pulsar's hash of a list (its `TopicList.calculateHash`): CRC32C over the names in order, with
    commas between them, as the hex digits of its four bytes, the lowest first.

    >>> topics_hash(["topic://a/b/d", "topic://a/b/c"])
    'a3d129ef'
    """
    return pieces_hash([",".join(sorted(names)).encode()])


def pieces_hash(pieces: Sequence[bytes]) -> str:
    """The same of a list in pieces."""
    crc = 0
    for number, piece in enumerate(pieces):
        if number:
            crc = google_crc32c.extend(crc, _COMMA)
        crc = google_crc32c.extend(crc, piece)
    return crc.to_bytes(4, "little").hex()


def names_of(piece: bytes) -> list[str]:
    """The names in a piece."""
    return piece.decode().split(",")


class SortedNames:
    """A set of names, in order."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        ordered = sorted({name.encode() for name in names})
        self._pieces = [
            _COMMA.join(ordered[at : at + _PIECE_NAMES_MAX])
            for at in range(0, len(ordered), _PIECE_NAMES_MAX)
        ]
        self._firsts = ordered[::_PIECE_NAMES_MAX]
        self._count = len(ordered)
        self.names_bytes = sum(map(len, ordered))

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[str]:
        for piece in self._pieces:
            yield from names_of(piece)

    @property
    def pieces(self) -> tuple[bytes, ...]:
        """All names as they are now: each piece has some, in order, with commas between them."""
        return tuple(self._pieces)

    def add(self, name: str) -> bool:
        """Adds the name; tells whether it is new."""
        return self._change(name.encode(), present=True)

    def discard(self, name: str) -> bool:
        """Removes the name; tells whether it was there."""
        return self._change(name.encode(), present=False)

    def pieces_after(self, name: str, count: int) -> tuple[bytes, ...]:
        """The first `count` names behind this one, which need not be there; "": from the first.

        Whole pieces among them are shared.
        """
        low = name.encode()
        found: list[bytes] = []
        for at in range(max(bisect_right(self._firsts, low) - 1, 0), len(self._pieces)):
            piece = self._pieces[at]
            size = piece.count(_COMMA) + 1
            if size > count or self._firsts[at] <= low:
                names = piece.split(_COMMA)
                names = names[bisect_right(names, low) :][:count]
                size, piece = len(names), _COMMA.join(names)
            count -= size
            if size:
                found.append(piece)
            if not count:
                break
        return tuple(found)

    def _change(self, name: bytes, *, present: bool) -> bool:
        at = max(bisect_right(self._firsts, name) - 1, 0)
        names = self._pieces[at].split(_COMMA) if self._pieces else []
        place = bisect_left(names, name)
        if (place < len(names) and names[place] == name) is present:
            return False
        if present:
            names.insert(place, name)
        else:
            del names[place]
        self._count += 1 if present else -1
        self.names_bytes += len(name) if present else -len(name)
        half = len(names) // 2
        parts = [names[:half], names[half:]] if len(names) > _PIECE_NAMES_MAX else [names]
        parts = [part for part in parts if part]
        self._pieces[at : at + 1] = [_COMMA.join(part) for part in parts]
        self._firsts[at : at + 1] = [part[0] for part in parts]
        return True
