"""One definition of each operation: its request, and the decoder of its answer.

An operation is a method that returns a `Call` and does no I/O. `RestMethod` sends that call.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Concatenate, Final, Generic, ParamSpec, Protocol, TypeVar, overload
from urllib.parse import quote

import msgspec

from anabranch.core.errors import InvalidInputError

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
    """An answer of a node, by field. Decoding leaves out fields that only a newer node knows."""


def path(*parts: str | int) -> str:
    """Returns a path of the interface with each part quoted. Raises InvalidInputError for text that
    can be no part.

    >>> path("admin", "v2", "tenants", "a b")
    '/admin/v2/tenants/a%20b'
    """
    return "".join("/" + _quoted(str(part)) for part in parts)


def _quoted(part: str) -> str:
    if part in (".", ".."):  # no way of quoting keeps whoever passes on a path from resolving it
        raise InvalidInputError(
            f"{part!r} is no name, and no value of anything: it is a step within a path; write out "
            "what is meant"
        )
    try:
        return quote(part, safe="")
    except UnicodeEncodeError:
        raise InvalidInputError(f"{part!a:.200} is no text: write it in UTF-8") from None


def nothing(_body: bytes) -> None:
    """Decodes the answer of a change, which has no content."""


NAMES: Final = msgspec.json.Decoder(list[str]).decode
NUMBER: Final = msgspec.json.Decoder(int).decode
PERMISSIONS: Final = msgspec.json.Decoder(dict[str, list[str]]).decode  # actions by role
STRINGS: Final = msgspec.json.Decoder(dict[str, str]).decode


class Blocking(Protocol):
    """Sends calls and waits for their answers, as `Admin` does."""

    def send(self, call: Call[T]) -> T: ...


class Awaitable(Protocol):
    """Sends calls from coroutines, as `AsyncAdmin` does."""

    async def send(self, call: Call[T]) -> T: ...


TransportT = TypeVar("TransportT", Blocking, Awaitable)


class Resource(Generic[TransportT]):
    """A group of operations on one kind of thing, with the transport that sends their calls."""

    def __init__(self, transport: TransportT) -> None:
        self.transport: TransportT = transport


class RestMethod(Generic[P, T]):
    """Turns a method that returns a call into one that sends it, with the same parameters.

    An `Admin`'s method returns the call's answer, an `AsyncAdmin`'s a coroutine of it. It raises
    AdminError, and InvalidInputError before it sends anything.
    """

    def __init__(self, call: Callable[Concatenate[Any, P], Call[T]]) -> None:
        self.call = call
        self.__doc__ = call.__doc__

    @overload
    def __get__(self, resource: None, kind: type) -> RestMethod[P, T]: ...
    @overload
    def __get__(self, resource: Resource[Blocking], kind: type) -> Callable[P, T]: ...
    @overload
    def __get__(
        self, resource: Resource[Awaitable], kind: type
    ) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, resource: Resource[Any] | None, kind: type) -> Any:
        if resource is None:
            return self

        @functools.wraps(self.call)
        def method(*args: P.args, **given: P.kwargs) -> Any:
            return resource.transport.send(self.call(resource, *args, **given))

        method.__signature__ = _as_called(self.call)  # type: ignore[attr-defined]
        return method


def _as_called(call: Callable[..., Call[Any]]) -> inspect.Signature:
    """Returns the signature that `help` shows: without `self`, and with the answer as
    the result.
    """
    _, *parameters = inspect.signature(call).parameters.values()
    answer = str(call.__annotations__["return"]).removeprefix("Call[").removesuffix("]")
    return inspect.Signature(parameters, return_annotation=answer)
