"""`SettingOverride`: what the log keeps of a setting that the whole cluster overrides.

Which settings there are, and which values they take, is no matter of the log: releases differ in
that. So a name is any that could be one, a value is text, and a node that does not know the name,
or cannot use the value, keeps both and goes by what it has instead.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

OVERRIDES_MAX: Final = 1_000  # of a cluster: more than any release has settings
VALUE_CHARACTERS_MAX: Final = 4_096
_NAME: Final = re.compile(r"[a-z][A-Za-z0-9]{0,127}")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
OVERRIDES_PREFIX: Final = "setting:"


class SettingOverride(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What a setting is for all nodes, whatever their own files say.

    `value`: as text. `before`: the override that this one replaced, at most one; none where it was
    overridden by nothing. `broker`: the one that was asked to. `since_ms`: the log's timestamp.
    """

    version: int
    value: str
    before: tuple[str, ...]
    broker: str
    since_ms: int
    proposal_id: str


def override_key(name: str) -> str:
    """Log and store key of a setting's override."""
    return f"{OVERRIDES_PREFIX}{name}"


def is_setting_name(name: str) -> bool:
    """Whether a setting of some release could have this name.

    >>> is_setting_name("lookupTimeoutMillis"), is_setting_name("look/up"), is_setting_name("")
    (True, False, False)
    """
    return _NAME.fullmatch(name) is not None


def value_fault(value: str) -> str:
    """What keeps a text from being a value, in words; "" for nothing.

    >>> value_fault("30"), value_fault("")
    ('', '')
    """
    if len(value) > VALUE_CHARACTERS_MAX:
        return f"it has {len(value)} characters: give at most {VALUE_CHARACTERS_MAX}"
    found = _CONTROL.search(value)
    return f"it holds {found[0]!a}, which is no character to print: leave it out" if found else ""
