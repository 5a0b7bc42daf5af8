"""Settings as fields of a class: how one is declared, and the values that it takes.

    class LogFields(SettingFields):
        log_format: Literal["json", "text"] = field("text", description="Form of log lines.")

A value is given as files, variables and flags have it: a text may stand for a number.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Mapping
from enum import Enum, unique
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, Self, TypeVar, get_args, get_origin

import msgspec
from msgspec import Meta

_T = TypeVar("_T")
_KINDS: Final[dict[object, str]] = {
    bool: "true, false",
    int: "integer",
    float: "number",
    str: "text",
    Path: "path",
}
_ARTICLES: Final[dict[object, str]] = {int: "an ", float: "a ", Path: "a "}
_BOUNDS: Final = {"ge": "from", "gt": "above", "le": "to", "lt": "below"}


@unique
class Changes(Enum):
    """The time at which a new value takes effect."""

    AT_START = "start"
    AT_RUN_TIME = "run time"


AtRunTime = Annotated[_T, Changes.AT_RUN_TIME]
"""The type of a field that the cluster may override while its nodes run (`anabranch config`)."""


class InvalidSettingsError(ValueError):
    """Values that settings do not take; `faults`: why, by the settings' names."""

    def __init__(self, faults: Mapping[str, str]) -> None:
        self.faults = faults
        super().__init__("; ".join(faults.values()))


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One field of settings.

    `name`: as people write it. `kind`: the type of its values. `computed`: gives the default.
    `check`: says what else is wrong with a value, "" for nothing. `is_told`: False if a value may
    be a secret by mistake.
    """

    name: str = ""
    kind: Any = None
    default: Any = None
    description: str = ""
    changes: Changes = Changes.AT_START
    limits: Meta = Meta()
    computed: Callable[[], Any] | None = None
    check: Callable[[Any], str] | None = None
    is_told: bool = True

    @property
    def values(self) -> str:
        """Kind and bounds in words."""
        kind = self._one_kind
        if get_origin(kind) is Literal:
            return ", ".join(get_args(kind))
        edges = ((word, getattr(self.limits, bound)) for bound, word in _BOUNDS.items())
        bounds = [f"{word} {text_of(edge)}" for word, edge in edges if edge is not None]
        return " ".join([_KINDS[kind], *bounds])

    def fallback(self) -> Any:
        """Returns the value where none is given."""
        return self.default if self.computed is None else self.computed()

    def taken(self, given: object) -> Any:
        """Returns the value that is meant. Raises ValueError."""
        kind = self._one_kind
        if kind is not self.kind and (given is None or given == ""):
            return None
        if isinstance(given, str) and kind in (bool, int, float):
            given = given.strip()  # blanks come from files of environments
        if kind is Path and isinstance(given, str | Path):
            return Path(given)
        pattern = self.limits.pattern
        wanted = f"give {_ARTICLES.get(kind, '')}{self.values}"
        wanted += f" like {pattern}" if pattern else ""
        wanted += ", not empty" if self.limits.min_length else ""
        try:
            value = msgspec.convert(given, Annotated[kind, self.limits], strict=False)
        except msgspec.ValidationError:
            raise ValueError(wanted) from None
        is_finite = not isinstance(value, float) or math.isfinite(value)
        # A pattern's end is found before the end of a line, too.
        if not is_finite or (pattern and not re.fullmatch(pattern, value)):
            raise ValueError(wanted)
        fault = "" if self.check is None else self.check(value)
        if fault:
            raise ValueError(fault)
        return value

    @property
    def _one_kind(self) -> Any:
        kinds = [each for each in get_args(self.kind) if each is not type(None)]
        is_optional = len(kinds) < len(get_args(self.kind))
        return kinds[0] if is_optional else self.kind


def field(
    default: Any = None,
    *,
    description: str,
    name: str = "",
    computed: Callable[[], Any] | None = None,
    check: Callable[[Any], str] | None = None,
    is_told: bool = True,
    **limits: Any,
) -> Any:
    """Declares a setting; `limits`: those of `msgspec.Meta`, the rest of `Setting`."""
    return Setting(
        name=name,
        default=default,
        description=description,
        limits=Meta(**limits),
        computed=computed,
        check=check,
        is_told=is_told,
    )


class SettingFields:
    """A group of settings with their values, which never change. Groups inherit from groups."""

    fields: ClassVar[dict[str, Setting]] = {}
    given: frozenset[str]  # fields whose values are no defaults

    def __init_subclass__(cls) -> None:
        bases = (each for each in reversed(cls.__mro__[1:]) if issubclass(each, SettingFields))
        cls.fields = {name: each for base in bases for name, each in base.fields.items()}
        kinds: dict[str, Any] = inspect.get_annotations(cls, eval_str=True)
        for name, kind in kinds.items():
            told: Setting = cls.__dict__[name]
            plain, *about = get_args(kind) if Changes.AT_RUN_TIME in get_args(kind) else (kind,)
            cls.fields[name] = msgspec.structs.replace(
                told,
                name=told.name or camel(name),
                kind=plain,
                changes=Changes.AT_RUN_TIME if about else Changes.AT_START,
            )
            delattr(cls, name)

    def __init__(self, values: Mapping[str, object], given: frozenset[str] = frozenset()) -> None:
        vars(self).update(values, given=given)

    @classmethod
    def of(cls, given: Mapping[str, object]) -> Self:
        """Returns settings by their names, the rest defaults. Raises InvalidSettingsError."""
        values: dict[str, object] = {}
        names = {each.name for each in cls.fields.values()}
        faults = {name: "it is no setting" for name in given if name not in names}
        for field_name, each in cls.fields.items():
            if each.name in given:
                try:
                    values[field_name] = each.taken(given[each.name])
                except ValueError as error:
                    faults[each.name] = str(error)
        if faults:
            raise InvalidSettingsError(faults)
        defaults = {
            name: each.fallback() for name, each in cls.fields.items() if name not in values
        }
        return cls(values | defaults, frozenset(values))

    @classmethod
    def part_of(cls, whole: SettingFields) -> Self:
        """Returns the values that another group has, the rest defaults."""
        return cls.of({}).but(
            {name: value for name, value in whole.by_field().items() if name in cls.fields}
        )

    def but(self, values: Mapping[str, object]) -> Self:
        """Returns them with other values of these fields, which are not checked."""
        return type(self)({**self.by_field(), **values}, self.given | values.keys())

    def by_field(self) -> dict[str, Any]:
        """Returns the values by the names of the fields."""
        return {name: getattr(self, name) for name in self.fields}

    def by_name(self) -> dict[str, Any]:
        """Returns the values by the names that people write."""
        return {each.name: getattr(self, name) for name, each in self.fields.items()}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and self.by_field() == other.by_field()

    __hash__ = None  # type: ignore[assignment]

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{name}: settings do not change; make others with `but`")


def camel(field_name: str) -> str:
    """Returns people's name of a field.

    >>> camel("broker_service_port")
    'brokerServicePort'
    """
    first, *words = field_name.split("_")
    return first + "".join(each.capitalize() for each in words)


def text_of(value: object) -> str:
    """A value as files, flags and overrides take it.

    >>> text_of(True), text_of(60.0), text_of(0.1)
    ('true', '60', '0.1')
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        short = f"{value:.15g}"
        return short if float(short) == value else repr(value)
    return str(value)
