"""Numbers with a unit, as people write settings: `30s`, `50MB`, `25%` (PIP-483, "Configuration").

Units of bytes count in thousands, as those of PIP-483 do: 50 MB are 50,000,000 bytes. Units with an
`i` count in 1,024. A name that ends in `MB` or `Mbytes` is Pulsar's, whose MB are 1,048,576 bytes.
Its values count in 1,024 with and without the `i`, so that 50MB of it are 50.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from enum import Enum, unique
from typing import Final

import msgspec

from anabranch.core.errors import InvalidInputError

_WRITTEN: Final = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]+|%)\s*", re.ASCII)


@unique
class Quantity(Enum):
    """The kind of thing that a number counts, with its units as multiples of the first one."""

    SECONDS = "duration"
    BYTES = "size"
    MEMORY = "size of memory"
    SHARE = "share"
    BIT_RATE = "rate of bits"

    @property
    def units(self) -> Mapping[str, Decimal]:
        """Each unit's name and size: in seconds, bytes, shares of 1, or bits a second."""
        return _UNITS[self]

    def read(self, text: str, one: Decimal = Decimal(1)) -> float:
        """The number to store, in units of `one`.

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
        return float(Decimal(match[1]) * unit / one)


def _in_steps(unit: str, step: int, infix: str = "") -> Mapping[str, Decimal]:
    return {f"{each}{infix}{unit}": Decimal(step) ** power for power, each in enumerate("KMGT", 1)}


_UNITS: Final[Mapping[Quantity, Mapping[str, Decimal]]] = {
    Quantity.SECONDS: {
        "ms": Decimal("0.001"),
        "s": Decimal(1),
        "m": Decimal(60),
        "h": Decimal(3_600),
        "d": Decimal(86_400),
    },
    Quantity.BYTES: {"B": Decimal(1), **_in_steps("B", 1_000), **_in_steps("B", 1_024, "i")},
    Quantity.MEMORY: {"B": Decimal(1), **_in_steps("B", 1_024), **_in_steps("B", 1_024, "i")},
    Quantity.SHARE: {"%": Decimal("0.01")},
    Quantity.BIT_RATE: _in_steps("bps", 1_000),
}


class Measure(msgspec.Struct, frozen=True):
    """The quantity and the unit (`one`) of a setting's number, or of a policy field's number."""

    quantity: Quantity
    one: Decimal = Decimal(1)

    def read(self, text: str) -> float:
        """The number that is stored.

        Raises InvalidInputError.

        >>> Measure(Quantity.SECONDS, Decimal("0.001")).read("5s")
        5000.0
        """
        return self.quantity.read(text, self.one)


# The measures by the ends of names, the longer ends first.
_ENDINGS: Final = {
    "Seconds": Measure(Quantity.SECONDS),
    "Sec": Measure(Quantity.SECONDS),
    "Millis": Measure(Quantity.SECONDS, Decimal("0.001")),
    "Ms": Measure(Quantity.SECONDS, Decimal("0.001")),
    "Minutes": Measure(Quantity.SECONDS, Decimal(60)),
    "Bytes": Measure(Quantity.BYTES),
    "MB": Measure(Quantity.MEMORY, Decimal(1 << 20)),
    "Mbytes": Measure(Quantity.MEMORY, Decimal(1 << 20)),
    "Gbps": Measure(Quantity.BIT_RATE, Decimal(1_000) ** 3),
    "RateChangeThreshold": Measure(Quantity.SHARE),
    "HistoryResourcePercentage": Measure(Quantity.SHARE),  # no percentage, despite Pulsar's name
    "Percentage": Measure(Quantity.SHARE, Decimal("0.01")),
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


def measure_of(name: str) -> Measure | None:
    """Returns the measure of a setting, or policy field, of that plain name, if it may have
    a unit.
    """
    if "BytesRate" in name:
        return Measure(Quantity.BYTES)
    return next((each for ending, each in _ENDINGS.items() if name.endswith(ending)), None)


def plain_form(name: str, value: object, known: frozenset[str]) -> tuple[str, object]:
    """A setting by the name and in the unit that the cluster keeps it in.

    `known` has the plain names. A duration may leave its unit out of the name, and then has it in
    the value. Any other setting comes back unchanged. Raises InvalidInputError.

    >>> plain_form("splitCooldown", "1m", frozenset({"splitCooldownSeconds"}))
    ('splitCooldownSeconds', 60.0)
    """
    named = (f"{name}{unit}" for unit in _IN_NAME)
    plain = name if name in known else next((each for each in named if each in known), name)
    unnamed = plain != name
    measure = measure_of(plain) if plain in known else None
    if measure is None:
        return name, value
    if isinstance(value, str) and not _is_number(value):
        return plain, measure.read(value)
    if unnamed and value is not None:
        raise InvalidInputError(
            f"{value!r:.200} has no unit: write {value!s:.200}s, or name it {plain}"
        )
    return plain, value


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
