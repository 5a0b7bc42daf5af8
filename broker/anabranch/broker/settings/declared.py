"""A node's fields for the settings that core declares as a struct (`core.settings.declared`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Generic, Literal, TypeVar, get_args, get_origin

import msgspec

from anabranch.broker.settings.fields import Changes, Setting, SettingFields

_ModelT = TypeVar("_ModelT", bound=SettingFields)
_StructT = TypeVar("_StructT", bound=msgspec.Struct)
_TEXTS: Final = tuple[str, ...]


class Declared(Generic[_StructT]):
    """The settings of a struct; `name_of` gives the setting of a field.

    A model's field has the name of the setting in files. It has the value of files, too: several
    texts are one, with commas.
    """

    def __init__(self, struct: type[_StructT], name_of: Callable[[str], str]) -> None:
        self._struct = struct
        self._fields = {name_of(each.name): each for each in msgspec.structs.fields(struct)}

    def extend(self, model: type[_ModelT]) -> type[_ModelT]:
        """Returns the class with these settings added. Use it as a decorator."""
        model.fields |= {name: _setting(name, each) for name, each in self._fields.items()}
        return model

    def read(self, settings: SettingFields) -> _StructT:
        """Returns the struct of the settings' values."""
        values = {each.name: _value(each, getattr(settings, n)) for n, each in self._fields.items()}
        return self._struct(**values)


def _setting(name: str, each: msgspec.structs.FieldInfo) -> Setting:
    kind, about = get_args(each.type)
    limits, default = about, each.default
    if type(None) in get_args(kind):  # the bounds are those of the value, if there is one
        (bounded,) = set(get_args(kind)) - {type(None)}
        kind, limits = get_args(bounded)
        kind = kind | None
    if kind == _TEXTS:
        kind, default = str, ",".join(default)
    elif get_origin(kind) is Literal:  # of an enum's members
        kind, default = Literal[tuple(each.value for each in get_args(kind))], default.value
    return Setting(
        name=name,
        kind=kind,
        default=default,
        description=about.description,
        changes=Changes.AT_RUN_TIME if about.extra["run_time"] else Changes.AT_START,
        limits=limits,
    )


def _value(each: msgspec.structs.FieldInfo, given: Any) -> Any:
    """Returns the struct's value for a model's value."""
    kind = get_args(each.type)[0]
    if kind == _TEXTS:
        return tuple(filter(None, map(str.strip, given.split(","))))
    return type(each.default)(given) if get_origin(kind) is Literal else given
