"""One definition of each operation: its request, and the type of its answer.

An operation is a method that returns a `Call` and does no I/O. `RestMethod` sends that call, and
decodes the answer as the type that the method's annotation names.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine, Mapping
from typing import (
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    Protocol,
    TypeVar,
    get_args,
    get_type_hints,
    is_typeddict,
    overload,
)
from urllib.parse import quote

import msgspec

from anabranch.core.errors import InvalidInputError

P = ParamSpec("P")
T = TypeVar("T")

Query = Mapping[str, str | list[str]]
Decode = Callable[[bytes], T]


class Call(msgspec.Struct, Generic[T], frozen=True):
    """A request to any node, whose answer is a `T`. `path` is quoted already."""

    verb: str
    path: str
    query: Query = {}
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


def decoder(answer: Any) -> Decode[Any]:
    """Returns what decodes an answer of that type. A node sends text as it is, and no body for
    nothing.

    >>> decoder(str)(b"ok"), decoder(int | None)(b""), decoder(list[int])(b"[1]")
    ('ok', None, [1])
    """
    if answer is str:
        return bytes.decode
    if answer is type(None):  # of a change
        return lambda _: None
    nothing = b"{}" if is_typeddict(answer) else b"null"
    decode = msgspec.json.Decoder(answer).decode
    return lambda body: decode(body or nothing)


class Blocking(Protocol):
    """Sends calls and waits for their answers, as `Admin` does."""

    def send(self, call: Call[T], decode: Decode[T]) -> T: ...


class Awaitable(Protocol):
    """Sends calls from coroutines, as `AsyncAdmin` does."""

    async def send(self, call: Call[T], decode: Decode[T]) -> T: ...


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

    @functools.cached_property
    def decode(self) -> Decode[T]:
        """The decoder of the answer."""
        (answer,) = get_args(get_type_hints(self.call)["return"])
        return decoder(answer)

    @functools.cached_property
    def _signature(self) -> inspect.Signature:
        """The signature that `help` shows: without `self`, and with the answer as the result."""
        _, *parameters = inspect.signature(self.call).parameters.values()
        answer = str(self.call.__annotations__["return"]).removeprefix("Call[").removesuffix("]")
        return inspect.Signature(parameters, return_annotation=answer)

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
            return resource.transport.send(self.call(resource, *args, **given), self.decode)

        method.__signature__ = self._signature  # type: ignore[attr-defined]
        return method
