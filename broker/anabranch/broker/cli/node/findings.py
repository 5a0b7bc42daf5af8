"""What `anabranch doctor` has looked at, one thing at a time."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from anabranch.core.errors import AnabranchError


class Finding(msgspec.Struct, frozen=True):
    """One check: what was looked at, whether it is well, and what was found or is to be done."""

    check: str
    ok: bool
    found: str


class NotWellError(AnabranchError):
    """What is to be done."""


def checked(check: str, look: Callable[[], str]) -> Finding:
    """What came of a look that says what it found, or raises what is wrong."""
    try:
        return Finding(check, ok=True, found=look())
    except AnabranchError as error:
        return Finding(check, ok=False, found=str(error))
    except OSError as error:
        return Finding(check, ok=False, found=f"{error.strerror or error}")
