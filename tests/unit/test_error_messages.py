"""Every error says something, and each of the SDK's names the thing and the remedy."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from enum import EnumType
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from types import UnionType
from typing import Any, get_origin

import anabranch
from anabranch.core.errors import AnabranchError

_REPOSITORY = Path(__file__).parents[2]
_REMEDY = re.compile(
    r"[:;,.?] (?:or |and |then |so |if \w+ \w+ |else )?"
    "(?:allow|ask|await|begin|check|choose|close|correct|create|delete|free|give|hand|look|lower|"
    "make|name|open|pip|raise|select|send|set|start|subscribe|take|try|use|wait|write)"
    r"\b|\bhas to\b|\bmust be\b",
    re.IGNORECASE,
)
_SAID = "<>"  # what is filled in
_QUOTED = ("settlement.py",)  # by `sender`, which has thing and remedy
_TREES = {
    path: ast.parse(path.read_text(encoding="utf-8"))
    for folder in ("client/anabranch", "wire/anabranch/access")
    for path in sorted((_REPOSITORY / folder).rglob("*.py"))
    if path.name not in _QUOTED
}


def _kinds(kind: type[AnabranchError]) -> Iterator[type[AnabranchError]]:
    yield kind
    for each in kind.__subclasses__():
        yield from _kinds(each)


def _every_kind() -> set[type[AnabranchError]]:
    for module in walk_packages(anabranch.__path__, "anabranch."):
        if not module.name.endswith("__main__"):
            import_module(module.name)
    return set(_kinds(AnabranchError))


def _nothing(kind: Any) -> Any:
    """The least value of a type."""
    kind = get_origin(kind) or kind
    if kind is UnionType:
        return None
    if isinstance(kind, EnumType):
        return next(iter(kind))
    if not isinstance(kind, type):
        return 0
    return () if inspect.isabstract(kind) else kind()


def _made(kind: type[AnabranchError]) -> AnabranchError:
    """By somebody who has nothing to say."""
    if not inspect.isfunction(kind.__init__):
        return kind("")
    asked = inspect.signature(kind, eval_str=True).parameters.values()
    return kind(*[_nothing(each.annotation) for each in asked if each.default is each.empty])


def test_every_error_names_thing_and_remedy_even_where_nobody_gave_a_reason() -> None:
    said = {kind: str(_made(kind)) for kind in _every_kind()}
    assert len(said) > 100
    assert {
        kind: text
        for kind, text in said.items()
        if len(text.split()) < 5 or not _REMEDY.search(text)
    } == {}


def _text(node: ast.expr) -> str:
    """A message as it is written, without what is filled in."""
    match node:
        case ast.Constant(str(said)):
            return said
        case ast.JoinedStr(parts):
            return "".join(map(_text, parts))
        case ast.BinOp(left, ast.Add(), right):
            return _text(left) + _text(right)
    return _SAID


def _messages() -> Iterator[tuple[str, str]]:
    """Of each place where an error of the SDK's or of administration is made, but for those that
    say what input is taken.
    """
    kinds = {kind.__name__ for kind in _every_kind() if not issubclass(kind, ValueError)}
    for path, tree in _TREES.items():
        for node in ast.walk(tree):
            match node:
                case ast.Call(ast.Name(name), [*_, message]) if name in kinds:
                    yield f"{path.relative_to(_REPOSITORY)}:{node.lineno} {name}", _text(message)


def test_each_message_of_the_sdk_ends_with_a_remedy_or_with_what_was_said() -> None:
    told = dict(_messages())
    assert len(told) > 50
    assert {
        place: said
        for place, said in told.items()
        if not (said.endswith(_SAID) or _REMEDY.search(said))
    } == {}
