"""Errors in words: those that people can do something about, and faults of ours."""

from __future__ import annotations

import tempfile
import traceback


def describe(error: BaseException) -> str | None:
    """Returns the text to print for an error; None when it has no message made for people."""
    from anabranch.core.errors import AnabranchError

    if isinstance(error, AnabranchError):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        where = f" ({error.filename})" if error.filename else ""
        return f"{error.strerror}{where}"
    return None


def keep(error: BaseException) -> str:
    """Writes a fault's stack to a file; returns what to print."""
    with tempfile.NamedTemporaryFile(
        "w", prefix="anabranch-fault-", suffix=".txt", delete=False, encoding="utf-8"
    ) as file:
        traceback.print_exception(error, file=file)
    return f"a fault, {type(error).__name__}: {error}; please report it, with {file.name}"
