"""One definition of each operation: what is asked, and how its answer is read.

An operation is a function that returns a `Call`; it does no I/O. `Sync` and `Async` make methods of
it, with its own parameters and result, for whoever can send calls.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, Generic, ParamSpec, Protocol, TypeVar, overload
from urllib.parse import quote

import msgspec

P = ParamSpec("P")
T = TypeVar("T")


class Call(msgspec.Struct, Generic[T], frozen=True):
    """A request to any node. `path` is quoted already; `decode` reads the answer's body."""

    verb: str
    path: str
    decode: Callable[[bytes], T]
    query: Mapping[str, str | list[str]] = {}
    body: Any = None


class Answer(msgspec.Struct, frozen=True, rename="camel"):
    """What nodes answer, by field. Fields that a newer node has besides are left out."""


def path(*parts: str | int) -> str:
    """A path of the interface, each part quoted.

    >>> path("admin", "v2", "tenants", "a b")
    '/admin/v2/tenants/a%20b'
    """
    return "".join("/" + quote(str(part), safe="") for part in parts)


def nothing(_body: bytes) -> None:
    """Reads the answer of a change."""


NAMES: Final = msgspec.json.Decoder(list[str]).decode
NUMBER: Final = msgspec.json.Decoder(int).decode
STRINGS: Final = msgspec.json.Decoder(dict[str, str]).decode


class Sender(Protocol):
    """Sends calls and waits for their answers."""

    def send(self, call: Call[T]) -> T: ...


class AsyncSender(Protocol):
    """The same for coroutines."""

    async def send(self, call: Call[T]) -> T: ...


class Group:
    """Operations on one kind of thing."""

    def __init__(self, sender: Sender) -> None:
        self.sender = sender


class AsyncGroup:
    """The same for coroutines."""

    def __init__(self, sender: AsyncSender) -> None:
        self.sender = sender


class Sync(Generic[P, T]):
    """A method that waits for the operation's answer. It raises AdminError or InvalidInputError."""

    def __init__(self, operation: Callable[P, Call[T]]) -> None:
        self.operation = operation
        self.__doc__ = operation.__doc__

    @overload
    def __get__(self, group: None, kind: type) -> Sync[P, T]: ...
    @overload
    def __get__(self, group: Group, kind: type) -> Callable[P, T]: ...
    def __get__(self, group: Group | None, kind: type) -> Sync[P, T] | Callable[P, T]:
        if group is None:
            return self
        sender = group.sender

        def method(*args: P.args, **given: P.kwargs) -> T:
            return sender.send(self.operation(*args, **given))

        return _described(method, self.operation)


class Async(Generic[P, T]):
    """A coroutine function of the operation. It raises AdminError or InvalidInputError."""

    def __init__(self, operation: Callable[P, Call[T]]) -> None:
        self.operation = operation
        self.__doc__ = operation.__doc__

    @overload
    def __get__(self, group: None, kind: type) -> Async[P, T]: ...
    @overload
    def __get__(self, group: AsyncGroup, kind: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(
        self, group: AsyncGroup | None, kind: type
    ) -> Async[P, T] | Callable[P, Coroutine[Any, Any, T]]:
        if group is None:
            return self
        sender = group.sender

        async def method(*args: P.args, **given: P.kwargs) -> T:
            return await sender.send(self.operation(*args, **given))

        return _described(method, self.operation)


_F = TypeVar("_F", bound=Callable[..., Any])


def _described(method: _F, operation: Callable[..., Call[Any]]) -> _F:
    """The method as `help` shows it: with the operation's words, and the answer as its result."""
    functools.update_wrapper(method, operation)
    signature = inspect.signature(operation)
    answer = str(signature.return_annotation).removeprefix("Call[").removesuffix("]")
    described = signature.replace(return_annotation=answer)
    method.__signature__ = described  # type: ignore[attr-defined]
    return method
