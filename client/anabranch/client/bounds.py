"""What a number among the settings may be; what it may not be is refused before it is used."""

from __future__ import annotations

import math
from typing import Any

from anabranch.core.errors import InvalidInputError


def number(name: str, given: Any) -> float:
    """A number, for whoever bounds it. Raises InvalidInputError."""
    if isinstance(given, bool) or not isinstance(given, int | float) or math.isnan(given):
        raise InvalidInputError(f"{name} must be a number: {given!r}")
    return given


def check_positive(name: str, given: Any) -> None:
    """Raises InvalidInputError."""
    if not number(name, given) > 0:
        raise InvalidInputError(f"{name} must be greater than 0: {given}")


def check_not_negative(name: str, given: Any) -> None:
    """Raises InvalidInputError."""
    if number(name, given) < 0:
        raise InvalidInputError(f"{name} must not be negative: {given}")


def check_whole(name: str, given: Any, least: int, most: int) -> None:
    """Of what is counted. Raises InvalidInputError."""
    if not isinstance(given, int) or isinstance(given, bool) or not least <= given <= most:
        raise InvalidInputError(f"{name} must be a whole number from {least} to {most}: {given!r}")
