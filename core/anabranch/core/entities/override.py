"""`SettingOverride`: the log's entry for a setting that the whole cluster overrides.

The log does not know the existing settings and their valid values, because releases differ in them.
So a name is any that could be one, and a value is text. A node that does not know the name, or
cannot use the value, keeps both and uses its own setting instead.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

OVERRIDES_MAX: Final = 1_000  # in a cluster: more than any release has settings
VALUE_CHARACTERS_MAX: Final = 4_096
_NAME: Final = re.compile(r"[a-z][A-Za-z0-9]{0,127}")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
OVERRIDES_PREFIX: Final = "setting:"


class SettingOverride(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The value of a setting for all nodes, whatever their own files say.

    `value`: as text. `before`: the override that this one replaced, at most one; none if there was
    no override. `broker`: the one that received the request. `since_ms`: the log's timestamp.
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
    """Tells whether a setting of some release could have this name.

    >>> is_setting_name("lookupTimeoutMillis"), is_setting_name("look/up"), is_setting_name("")
    (True, False, False)
    """
    return _NAME.fullmatch(name) is not None


def value_fault(value: str) -> str:
    """The reason, in words, why a text is no value; "" if it is one.

    >>> value_fault("30"), value_fault("")
    ('', '')
    """
    if len(value) > VALUE_CHARACTERS_MAX:
        return f"it has {len(value)} characters: give at most {VALUE_CHARACTERS_MAX}"
    found = _CONTROL.search(value)
    return f"it holds {found[0]!a}, which is no character to print: leave it out" if found else ""
