"""The findings of `anabranch doctor`."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from anabranch.core.errors import AnabranchError


class Finding(msgspec.Struct, frozen=True):
    """One check: its subject, its result, and a finding or a remedy."""

    check: str
    ok: bool
    found: str


class NotWellError(AnabranchError):
    """Something is not well; the text is the remedy."""


def checked(check: str, look: Callable[[], str]) -> Finding:
    """Runs a look and returns its finding; `look` returns the text of that, or raises the fault."""
    try:
        return Finding(check, ok=True, found=look())
    except AnabranchError as error:
        return Finding(check, ok=False, found=str(error))
    except OSError as error:
        return Finding(check, ok=False, found=f"{error.strerror or error}")
