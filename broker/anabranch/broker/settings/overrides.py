"""A node's view of the cluster's overrides: it finds those that count, and the reasons against
others.

The log keeps any name with any text. Each node finds out for itself which of them it can use,
because it has its own file, and may be of another release. It never stops over an override, but
leaves an unusable one out. If several contradict one another, or the node's own file, the newest go
first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from anabranch.broker.settings.fields import Changes, text_of
from anabranch.broker.settings.model import SETTING_NAMES, Settings, contradictions, name_of
from anabranch.broker.settings.sources import near_names
from anabranch.core.entities.override import SettingOverride, value_fault
from anabranch.core.errors import InvalidInputError
from anabranch.core.quantities import plain_form

# Times 60,000 it still is an integer of 64 bits, and a fraction of a second can be told of it.
NUMBER_MAX: Final = 10**12
_FIELDS: Final = {name_of(field): field for field in Settings.fields}
_NAMES: Final = frozenset(_FIELDS)
RUN_TIME_SETTINGS: Final = tuple(
    sorted(
        name
        for name, field in _FIELDS.items()
        if Settings.fields[field].changes is Changes.AT_RUN_TIME
    )
)
"""The names of the settings that may change while nodes run."""
_CHANGING: Final = frozenset(RUN_TIME_SETTINGS)
_ALL_SETTINGS: Final = "; `anabranch settings` lists those that there are"
_NOT_CHANGING: Final = "Can't update non-dynamic configuration"  # as Pulsar says
_INVALID: Final = "Invalid dynamic-config value"  # likewise


class EffectiveSettings(msgspec.Struct, frozen=True):
    """The settings that a node goes by. `ignored`: overrides that do not count there, and why."""

    settings: Settings
    ignored: Mapping[str, str]


def effective(own: Settings, overrides: Iterable[tuple[str, str]]) -> EffectiveSettings:
    """A node's own settings under the overrides, names and values, the oldest first."""
    ignored: dict[str, str] = {}
    used: dict[str, object] = {}
    given = own.by_name()
    for name, text in overrides:
        try:
            used[name] = _value(name, text)
        except InvalidInputError as error:
            ignored[name] = str(error)
    found, wrong = _together(given, used)
    while wrong:
        involved = {name for names, _ in wrong for name in names}
        name = next(name for name in reversed(tuple(used)) if name in involved)  # the newest
        ignored[name] = next(why for names, why in wrong if name in names)
        del used[name]
        found, wrong = _together(given, used)
    return EffectiveSettings(found, ignored)


def oldest_first(overrides: Mapping[str, SettingOverride]) -> list[tuple[str, str]]:
    """Returns names and values in the order of the log's time, and by name within an instant."""
    ordered = sorted(overrides.items(), key=lambda each: (each[1].since_ms, each[0]))
    return [(name, each.value) for name, each in ordered]


def checked_override(written: str, text: str) -> tuple[str, str]:
    """A setting and its value as they are logged: without a unit, as `anabranch settings` has them.

    Raises InvalidInputError for what could be used on no node of this release.

    >>> checked_override("scalableTopicMergeWindow", "5m")
    ('scalableTopicMergeWindowSeconds', '300')
    >>> checked_override("lookupTimeoutMillis", "5s")
    ('lookupTimeoutMillis', '5000')
    """
    fault = value_fault(text)
    if fault:
        raise InvalidInputError(f"{_INVALID}: {written} is given {text!a:.200}: {fault}")
    run_time_name(written)
    try:
        name, said = plain_form(written, text, _NAMES)
    except InvalidInputError as error:
        raise InvalidInputError(f"{_INVALID}: {written}: {error}") from None
    return name, text_of(_value(name, text, said))


def setting_fault(name: str, value: str) -> str:
    """Says why this release cannot use a logged override; "" if it can.

    >>> setting_fault("lookupTimeoutMillis", "30000")
    ''
    >>> setting_fault("topicPrefix", "a.")[:60]
    "Can't update non-dynamic configuration: topicPrefix changes "
    """
    try:
        _value(name, value)
    except InvalidInputError as error:
        return str(error)
    return ""


def run_time_name(written: str) -> str:
    """The name of a setting that may change while nodes run. Raises InvalidInputError."""
    spelt = (written, f"{written}Seconds", f"{written}InSeconds")
    found = next((each for each in spelt if each in _NAMES), "")
    if not found:
        hint = near_names(SETTING_NAMES, written[:100], otherwise=_ALL_SETTINGS)
        raise InvalidInputError(f"{_NOT_CHANGING}: {written[:100]!a} is no setting{hint}")
    if found not in _CHANGING:
        raise InvalidInputError(
            f"{_NOT_CHANGING}: {found} changes when a node starts; give it to each node in its "
            "file, its environment or a flag, and restart it"
        )
    return found


def _value(name: str, text: str, said: object = None) -> object:
    """The value that a text is of a setting; `said`: in the setting's unit, where the text has one
    of its own. Raises InvalidInputError.
    """
    found = run_time_name(name)
    if found != name:  # the log has what a setting is called, and no other spelling of it
        raise InvalidInputError(f"{_NOT_CHANGING}: {name!a} is no setting: it is called {found}")
    field = Settings.fields[_FIELDS[name]]
    try:
        value: object = field.taken(text if said is None else said)
    except ValueError as error:
        raise InvalidInputError(f"{_INVALID}: {name} is given {text!a:.200}: {error}") from None
    if isinstance(value, int | float) and abs(value) > NUMBER_MAX:
        raise InvalidInputError(
            f"{_INVALID}: {name} is given {text:.40}: give at most {NUMBER_MAX}"
        )
    return value


def _together(
    given: Mapping[str, object], used: Mapping[str, object]
) -> tuple[Settings, list[tuple[tuple[str, ...], str]]]:
    """The settings, and what contradicts itself among them because of an override."""
    found = Settings.of({**given, **used})
    return found, [
        (names, f"{_INVALID}: {why}")
        for names, why in contradictions(found)
        if not used.keys().isdisjoint(names)
    ]
