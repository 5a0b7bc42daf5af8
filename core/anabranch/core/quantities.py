"""Numbers with a unit, as people write settings: `30s`, `50MB`, `25%` (PIP-483, "Configuration").

Units of bytes count in thousands, as those of PIP-483 do: 50 MB are 50,000,000 bytes. Those with
an `i` count in 1,024.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from enum import Enum, unique
from typing import Final

from anabranch.core.errors import InvalidInputError

_WRITTEN: Final = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]+|%)\s*", re.ASCII)


@unique
class Quantity(Enum):
    """What a number counts; its units, by how many of what is stored one is."""

    SECONDS = "duration"
    BYTES = "size"
    SHARE = "share"

    @property
    def units(self) -> Mapping[str, Decimal]:
        """Each unit's name and size."""
        return _UNITS[self]

    def read(self, text: str) -> float:
        """The number that is stored: seconds, bytes, or a share of 1.

        Raises InvalidInputError.

        >>> Quantity.SECONDS.read("1.5m"), Quantity.BYTES.read("50MB"), Quantity.SHARE.read("25%")
        (90.0, 50000000.0, 0.25)
        """
        match = _WRITTEN.fullmatch(text)
        unit = self.units.get(match[2]) if match else None
        if match is None or unit is None:
            raise InvalidInputError(
                f"{text!r} is no {self.value}: write a number and one of {', '.join(self.units)}"
            )
        return float(Decimal(match[1]) * unit)


_UNITS: Final[Mapping[Quantity, Mapping[str, Decimal]]] = {
    Quantity.SECONDS: {
        "ms": Decimal("0.001"),
        "s": Decimal(1),
        "m": Decimal(60),
        "h": Decimal(3_600),
        "d": Decimal(86_400),
    },
    Quantity.BYTES: {
        "B": Decimal(1),
        **{f"{each}B": Decimal(1_000) ** power for power, each in enumerate("KMGT", 1)},
        **{f"{each}iB": Decimal(1_024) ** power for power, each in enumerate("KMGT", 1)},
    },
    Quantity.SHARE: {"%": Decimal("0.01")},
}
_IN_NAME: Final = ("InSeconds", "Seconds")  # the longer one first


def durations(names: Iterable[str]) -> list[str]:
    """The names among these that end in seconds."""
    return [name for name in names if name.endswith("Seconds")]


def without_unit(name: str) -> str:
    """A duration's name as it may be written where its value has the unit.

    >>> without_unit("mergeWindowSeconds"), without_unit("monitorIntervalInSeconds")
    ('mergeWindow', 'monitorInterval')
    """
    return name.removesuffix(next(each for each in _IN_NAME if name.endswith(each)))


def quantity_of(name: str) -> Quantity | None:
    """Returns what a setting, or policy field, of that plain name counts, if it may have a unit."""
    if name.endswith("Seconds"):
        return Quantity.SECONDS
    if "BytesRate" in name:
        return Quantity.BYTES
    return Quantity.SHARE if name.endswith("RateChangeThreshold") else None


def plain_form(name: str, value: object, known: frozenset[str]) -> tuple[str, object]:
    """A setting by the name and in the unit that it is kept in.

    `known` has the plain names. A duration may leave its unit out of the name, and then has it in
    the value. What is no such thing is returned as it is. Raises InvalidInputError.

    >>> plain_form("splitCooldown", "1m", frozenset({"splitCooldownSeconds"}))
    ('splitCooldownSeconds', 60.0)
    """
    named = (f"{name}{unit}" for unit in _IN_NAME)
    plain = name if name in known else next((each for each in named if each in known), name)
    unnamed = plain != name
    quantity = quantity_of(plain) if plain in known else None
    if quantity is None:
        return name, value
    if isinstance(value, str) and not _is_number(value):
        return plain, quantity.read(value)
    if unnamed and value is not None:
        raise InvalidInputError(f"{value!r} has no unit: write {value}s, or name it {plain}")
    return plain, value


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
