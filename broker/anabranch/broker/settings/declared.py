"""A node's fields for the settings that core declares as a struct (`core.settings.declared`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final, Generic, Literal, TypeVar, get_args, get_origin

import msgspec
from pydantic import BaseModel, Field, create_model

from anabranch.broker.settings.changes import Changes

_ModelT = TypeVar("_ModelT", bound=BaseModel)
_StructT = TypeVar("_StructT", bound=msgspec.Struct)
_BOUNDS: Final = ("ge", "gt", "le", "lt", "pattern")
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
        """Returns the model with these settings added. Use it as a decorator."""
        fields: dict[str, Any] = {name: _field(each) for name, each in self._fields.items()}
        return create_model(
            model.__name__,
            __base__=model,
            __doc__=model.__doc__,
            __module__=model.__module__,
            **fields,
        )

    def read(self, settings: BaseModel) -> _StructT:
        """Returns the struct of the settings' values."""
        values = {each.name: _value(each, getattr(settings, n)) for n, each in self._fields.items()}
        return self._struct(**values)


def _field(each: msgspec.structs.FieldInfo) -> tuple[Any, Any]:
    """Returns the definition of a model's field: its type and the rest."""
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
    bounds = {bound: getattr(limits, bound) for bound in _BOUNDS}
    given = {bound: value for bound, value in bounds.items() if value is not None}
    changes = Changes.AT_RUN_TIME if about.extra["run_time"] else Changes.AT_START
    return Annotated[kind, changes], Field(default, description=about.description, **given)


def _value(each: msgspec.structs.FieldInfo, given: Any) -> Any:
    """Returns the struct's value for a model's value."""
    kind = get_args(each.type)[0]
    if kind == _TEXTS:
        return tuple(filter(None, map(str.strip, given.split(","))))
    return type(each.default)(given) if get_origin(kind) is Literal else given
