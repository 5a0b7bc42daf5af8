"""The settings to compare, as they are named on the command line: by name, and by what varies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, Final

import msgspec

from anabranch.core.balance.settings import NAMES, BalanceSettings, fault_of
from anabranch.core.errors import InvalidInputError

DEFAULT: Final = "default"
VARIANTS_MAX: Final = 1_000
_KNOWN: Final = frozenset(NAMES.values())

Variants = Mapping[str, BalanceSettings]


def parse_variants(
    given: Sequence[str], varied: Sequence[str]
) -> tuple[Variants, Mapping[str, str]]:
    """Parses `default`, `NAME=FILE` or `NAME={...}`, and `SETTING=VALUE,...` that each of them is
    tried with, all combinations: those that can be used, and of the others why not, both by name.

    Raises InvalidInputError for what cannot be a list of values.
    """
    found: dict[str, BalanceSettings] = {}
    faults: dict[str, str] = {}
    axes = [_axis(text) for text in varied]
    combinations = [dict(each) for each in product(*axes)]
    count = len(given) * len(combinations)
    if count > VARIANTS_MAX:
        raise InvalidInputError(
            f"{count:,} settings are too many for one comparison: give at most {VARIANTS_MAX:,}"
        )
    for text in given:
        name, sep, what = text.partition("=")
        for values in combinations:
            tail = ",".join(f"{_short(key)}={value}" for key, value in values.items())
            full = f"{name} {tail}" if tail else name
            try:
                if full in found:
                    raise InvalidInputError("two settings have this name")
                found[full] = _parsed(name, what if sep else None, values)
            except InvalidInputError as error:
                faults[full or text] = str(error)
    return found, faults


def _parsed(name: str, what: str | None, values: Mapping[str, str]) -> BalanceSettings:
    if not name:
        raise InvalidInputError("they have no name: give NAME=FILE or NAME={...}")
    if what is None and name != DEFAULT:
        raise InvalidInputError(f"give {DEFAULT}, NAME=FILE or NAME={{...}}, not {name!r}")
    form = {}
    if what is not None:
        form = _decoded(what.encode() if what.lstrip().startswith("{") else _read(what))
    form |= {key: _value(value) for key, value in values.items()}
    unknown = sorted(form.keys() - _KNOWN)
    if unknown:
        raise InvalidInputError(
            f"there is no setting {unknown[0]} of the balancer: `anabranch settings loadBalancer` "
            "lists them"
        )
    try:
        settings = msgspec.convert(form, BalanceSettings)
    except msgspec.ValidationError as error:
        raise InvalidInputError(str(error)) from None
    fault = fault_of(settings)
    if fault:
        raise InvalidInputError(fault)
    return settings


def _axis(text: str) -> list[tuple[str, str]]:
    name, sep, values = text.partition("=")
    listed = [each.strip() for each in values.split(",")]
    if not sep or name not in _KNOWN or not all(listed):
        raise InvalidInputError(
            f"{text!r} is not of the form SETTING=VALUE,VALUE with a setting of the balancer, such "
            f"as {NAMES['broker_load_target_std']}=0.1,0.25"
        )
    return [(name, each) for each in listed]


def _value(text: str) -> Any:
    """A number or a truth as JSON has it; any other word is text."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def _short(name: str) -> str:
    return name.removeprefix("loadBalancer")


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InvalidInputError(f"{path}: {error.strerror}") from None


def _decoded(form: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(form, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise InvalidInputError(f"they are no settings in JSON: {error}") from None
