"""The policies to compare, in the form of the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from anabranch.core.autoscale.policy import AutoScalePolicy, fault_of
from anabranch.core.errors import InvalidInputError

DEFAULT: Final = "default"


def parse_policies(given: Sequence[str]) -> tuple[Mapping[str, AutoScalePolicy], Mapping[str, str]]:
    """Parses `default`, `NAME=FILE` or `NAME={...}`. Returns the usable policies and the faults of
    the others, both by name.

    A policy takes all that it does not set from the default one.
    """
    found: dict[str, AutoScalePolicy] = {}
    faults: dict[str, str] = {}
    for text in given:
        name, sep, what = text.partition("=")
        try:
            if name in found:
                raise InvalidInputError("two policies have this name")
            found[name] = _parsed(name, what if sep else None)
        except InvalidInputError as error:
            faults[name or text] = str(error)
    return found, faults


def _parsed(name: str, what: str | None) -> AutoScalePolicy:
    if what is None:
        if name != DEFAULT:
            raise InvalidInputError(f"give {DEFAULT}, NAME=FILE or NAME={{...}}, not {name!r}")
        return AutoScalePolicy()
    if not name:
        raise InvalidInputError("it has no name: give NAME=FILE or NAME={...}")
    policy = _decoded(what.encode() if what.lstrip().startswith("{") else _read(what))
    fault = fault_of(policy)
    if fault:
        raise InvalidInputError(fault)
    return policy


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InvalidInputError(f"{path}: {error.strerror}") from None


def _decoded(form: bytes) -> AutoScalePolicy:
    try:
        return msgspec.json.decode(form, type=AutoScalePolicy)
    except msgspec.DecodeError as error:
        raise InvalidInputError(f"it is no auto-scale policy in JSON: {error}") from None
