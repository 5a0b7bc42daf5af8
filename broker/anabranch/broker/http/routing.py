"""Routes of a node: each is declared once, by its path and the parameters of a function.

    @routes.get("/admin/v2/tenants/{tenant}")
    async def get_tenant(tenant: str) -> TenantInfo:

A parameter that stands in the path is a part of the path. A struct, or a type with `BODY`, is the
request's body. All others are query parameters; those without a default must be given. The function
returns the value to send as JSON, None for 204, or a response of its own. The right to the route is
that of the table (`core.security.table`), by its verb and path.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping
from enum import Enum
from http import HTTPStatus
from types import UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    NamedTuple,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from anabranch.broker.errors import OperationError
from anabranch.broker.http.errors import MalformedError, NoPathError, answer_to, method_refused
from anabranch.broker.http.guards.authentication import host_of, principal_of
from anabranch.broker.operations import Operations
from anabranch.broker.security.guard import AccessGuard
from anabranch.core import names
from anabranch.core.errors import InvalidInputError
from anabranch.core.names import Namespace
from anabranch.core.security.table import REST, resource_of

STALE_HEADER: Final = "X-Anabranch-Stale"
BODY: Final = object()
"""Marks the parameter that is the request's body, where its type is no struct."""
Handler = Callable[..., Awaitable[Any]]
_HandlerT = TypeVar("_HandlerT", bound=Handler)
_PART: Final = re.compile(r"\{(\w+)(:text)?\}")  # `:text`: the rest of a path, any characters
_JSON: Final = "application/json"
_NO_JSON: Final = "the body must be JSON: send it with Content-Type: application/json"


class Named(NamedTuple):
    """The name of a query parameter that no parameter of a function can have."""

    name: str


class Derived(NamedTuple):
    """A parameter that is made of parts of the path, which are checked first."""

    parts: tuple[str, ...]
    make: Callable[..., Any]


Home = Annotated[Namespace, Derived(("tenant", "namespace"), names.namespace)]
TopicName = Annotated[str, Derived(("tenant", "namespace", "topic"), names.scalable_topic)]


class Place(Enum):
    """The part of a request that a parameter is from."""

    PATH = "path parameter"
    QUERY = "query parameter"
    BODY = "body"
    DERIVED = ""
    REQUEST = "request"


class Parameter(NamedTuple):
    """A parameter of a route's function. `said`: its name in the request."""

    name: str
    place: Place
    said: str
    kind: Any
    default: Any  # `inspect.Parameter.empty` where it must be given
    derived: Derived | None = None

    @property
    def is_needed(self) -> bool:
        """True if a request without it is refused."""
        return self.default is inspect.Parameter.empty

    def of(self, request: Request, parts: Mapping[str, str]) -> Any:
        """The value that the request has outside of its body. Raises MalformedError."""
        if self.derived is not None:
            return self.derived.make(*(parts[part] for part in self.derived.parts))
        if self.place is Place.REQUEST:
            return request
        given: str | list[str]
        if self.place is Place.PATH:
            given = parts[self.said]
        elif several := request.query_params.getlist(self.said):
            given = several if _has(self.kind, list) else several[-1]
        elif self.is_needed:
            raise MalformedError(f"query parameter {self.said!r} is missing")
        else:
            return self.default
        try:
            return msgspec.convert(given, self.kind, strict=False)
        except msgspec.ValidationError as error:
            # An unknown word of a fixed few names nothing, in a query as in a path.
            is_name = self.place is Place.PATH or _has(self.kind, Literal)
            status = HTTPStatus.NOT_FOUND if is_name else HTTPStatus.BAD_REQUEST
            said = f"{self.place.value} {self.said!r} is {given!r:.200}: {error}"
            raise MalformedError(said, status) from None

    async def decoded(self, request: Request) -> Any:
        """The request's body. Raises MalformedError."""
        content = await request.body()
        if not content:
            if self.is_needed:
                raise MalformedError("the body is missing")
            return self.default
        if _has(self.kind, msgspec.Raw):
            return msgspec.Raw(content)
        said = request.headers.get("content-type", _JSON).partition(";")[0].strip().lower()
        if said != _JSON and not said.endswith("+json"):
            raise MalformedError(_NO_JSON, HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
        try:
            return msgspec.json.decode(content, type=self.kind)
        except msgspec.ValidationError as error:
            raise MalformedError(f"the body is not of its form: {error}") from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise MalformedError(f"the body is not JSON: {error}; send valid JSON") from None


class Route(NamedTuple):
    """One route. `asked`: its row in the table of rights."""

    verb: str
    path: str
    tag: str
    handler: Handler
    parameters: tuple[Parameter, ...]
    returns: Any
    pattern: re.Pattern[str]
    asked: str

    async def answered(self, request: Request, parts: Mapping[str, str]) -> Response:
        """Reads the request and calls the function."""
        given = {
            each.name: each.of(request, parts)
            for each in self.parameters
            if each.place is not Place.BODY
        }
        for each in self.parameters:
            if each.place is Place.BODY:
                given[each.name] = await each.decoded(request)
        found = await self.handler(**given)
        if isinstance(found, Response):
            return found
        if found is None:
            return Response(status_code=204)
        return Response(msgspec.json.encode(found), media_type=_JSON)


class RouteGroup:
    """Routes with a common beginning of their paths, in the order in which they are tried."""

    def __init__(self, tag: str, prefix: str = "") -> None:
        self.all: list[Route] = []
        self._tag = tag
        self._prefix = prefix

    def get(self, path: str) -> Callable[[_HandlerT], _HandlerT]:
        """Adds the function as a route; so do the others."""
        return self._add("GET", path)

    def put(self, path: str) -> Callable[[_HandlerT], _HandlerT]:
        return self._add("PUT", path)

    def post(self, path: str) -> Callable[[_HandlerT], _HandlerT]:
        return self._add("POST", path)

    def delete(self, path: str) -> Callable[[_HandlerT], _HandlerT]:
        return self._add("DELETE", path)

    def _add(self, verb: str, rest: str) -> Callable[[_HandlerT], _HandlerT]:
        written = f"{self._prefix}{rest}"
        path = written.replace(":text}", "}")

        def add(handler: _HandlerT) -> _HandlerT:
            hints = get_type_hints(handler, include_extras=True)
            found = tuple(
                _parameter(each, hints[each.name], path)
                for each in inspect.signature(handler).parameters.values()
            )
            pattern = re.compile(_expression(written))
            asked = f"{verb} {path}"
            self.all.append(
                Route(verb, path, self._tag, handler, found, hints["return"], pattern, asked)
            )
            return handler

        return add


def _expression(path: str) -> str:
    """The regular expression of a path with its parts in braces."""
    found, end = "", 0
    for part in _PART.finditer(path):
        some = r"[\s\S]*" if part[2] else "[^/]+"
        found += f"{re.escape(path[end : part.start()])}(?P<{part[1]}>{some})"
        end = part.end()
    return found + re.escape(path[end:])


def _parameter(given: inspect.Parameter, kind: Any, path: str) -> Parameter:
    said, place, derived = given.name, Place.QUERY, None
    for mark in _marks(kind):
        if isinstance(mark, Derived):
            place, derived = Place.DERIVED, mark
        elif isinstance(mark, Named):
            said = mark.name
        elif mark is BODY:
            place = Place.BODY
    if kind is Request:
        place = Place.REQUEST
    elif _has(kind, msgspec.Struct):
        place = Place.BODY
    elif f"{{{given.name}}}" in path:
        place = Place.PATH
    return Parameter(given.name, place, said, kind, given.default, derived)


def _marks(kind: Any) -> tuple[Any, ...]:
    """Returns the marks of a type, or of the parts of an optional one."""
    if get_origin(kind) is Annotated:
        return (*kind.__metadata__, *_marks(kind.__origin__))
    if get_origin(kind) in (Union, UnionType):
        return tuple(mark for part in get_args(kind) for mark in _marks(part))
    return ()


def _has(kind: Any, wanted: object) -> bool:
    """Returns whether the type, or a part of an optional or annotated one, is of that kind."""
    if get_origin(kind) is wanted:
        return True
    if isinstance(kind, type) and isinstance(wanted, type) and issubclass(kind, wanted):
        return True
    if get_origin(kind) is Annotated:
        return _has(kind.__origin__, wanted)
    return get_origin(kind) in (Union, UnionType) and any(
        _has(part, wanted) for part in get_args(kind)
    )


class Api:
    """ASGI: finds the route of a request, and checks the right to it before anything is done.

    `guard`: asked of each request; None: of none. A request that is refused is decided once more
    when this node has read all that the log held when the request came (`Proposals.decided`).
    """

    def __init__(
        self, routes: list[Route], operations: Operations, guard: AccessGuard | None
    ) -> None:
        self.routes = routes
        self._runtime = operations.runtime
        self._decide = operations.decided
        self._guard = guard
        missing = {each.asked for each in routes} - REST.keys()
        if missing:
            raise KeyError(missing)  # a new route needs a row in the table

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        had_lease = self._runtime.has_lease  # it may be back before the answer
        try:
            found = await self._found(request)
        except ClientDisconnect:
            return
        except (OperationError, InvalidInputError, MalformedError) as error:
            found = answer_to(request, error)
        is_stale = not (had_lease and self._runtime.has_lease)
        if is_stale and (found.status_code >= HTTPStatus.BAD_REQUEST or _is_read(request)):
            found.headers[STALE_HEADER] = "true"  # the state may have changed
        await found(scope, receive, send)

    async def _found(self, request: Request) -> Response:
        path, allowed = request.scope["path"], set()
        for route in self.routes:
            match = route.pattern.fullmatch(path)
            if match is not None:
                if route.verb == request.method:
                    return await self._decided(request, route, match.groupdict())
                allowed.add(route.verb)
        if allowed:
            return method_refused(request, sorted(allowed))
        raise NoPathError(path)

    async def _decided(self, request: Request, route: Route, parts: Mapping[str, str]) -> Response:
        guard = self._guard
        if guard is None:
            return await self._decide(lambda: route.answered(request, parts))
        principal, rule = principal_of(request.scope), guard.rule_of(route.asked)
        on = resource_of(rule, parts)

        async def ask() -> Response:
            guard.check(principal, rule.need, on)
            found = await route.answered(request, parts)
            if _is_read(request):  # the answer may be newer than the loss of a right
                guard.check(principal, rule.need, on)
            return found

        try:
            guard.must_be_somebody(principal, rule.need)
            return await self._decide(ask)
        except OperationError as error:
            guard.note(error, route.asked, host_of(request.scope))
            raise


def _is_read(request: Request) -> bool:
    return request.method == "GET"
