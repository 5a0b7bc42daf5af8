"""The routes as OpenAPI, and as a page: `/openapi.json` and `/docs`, which anybody may ask for.

Both are made once, at the first request and beside the event loop, because that takes long. So a
stranger who asks again and again costs no more than a probe of the node's health.
"""

from __future__ import annotations

import asyncio
import re
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from html import escape
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from anabranch.broker.http.routing import Place, Route

_TITLE: Final = "Anabranch"
_ABOUT: Final = (
    "Look-ups and administration, with the paths, bodies and status codes of Pulsar's admin REST."
)
_REFUSED: Final = "Refused: the reason names the thing and the remedy (docs/rest.md, Refusals)."
_NO_WORD: Final = re.compile(r"\W+")
_KEPT: Final = {"Cache-Control": "max-age=60"}  # another release may serve here then
_STYLE: Final = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 60rem; padding: 1rem; }
code { font-family: ui-monospace, monospace; overflow-wrap: anywhere; }
td { border-top: 1px solid #8884; padding: .3rem .6rem .3rem 0; vertical-align: top; }
"""
# Text in the page runs nothing and loads nothing, and no other site's frame shows the page.
_STYLE_HASH: Final = b64encode(sha256(_STYLE.encode()).digest()).decode()
CONTENT_POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)

_Make = Callable[[Sequence[Route], str], bytes]


class Problem(msgspec.Struct):
    """The answer to every refused request: `reason` tells the fault and its remedy."""

    reason: str


class Description:
    """The description of an application's routes."""

    def __init__(self, routes: Sequence[Route], version: str) -> None:
        self._routes = routes
        self._version = version
        self._making = asyncio.Lock()
        self._made: dict[_Make, bytes] = {}

    async def openapi(self) -> Response:
        """The description for programs."""
        made = await self._once(_openapi)
        return Response(made, media_type="application/json", headers=_KEPT)

    async def page(self) -> Response:
        """The description for people."""
        headers = {**_KEPT, "Content-Security-Policy": CONTENT_POLICY}
        made = await self._once(page_of)
        return Response(made, media_type="text/html", headers=headers)

    async def _once(self, make: _Make) -> bytes:
        async with self._making:
            if make not in self._made:
                self._made[make] = await asyncio.to_thread(make, self._routes, self._version)
        return self._made[make]


def _openapi(routes: Sequence[Route], version: str) -> bytes:
    return msgspec.json.encode(openapi_of(routes, version))


def openapi_of(routes: Sequence[Route], version: str) -> dict[str, Any]:
    """Returns the OpenAPI document."""
    kinds = [Problem, *(kind for route in routes for kind in _kinds(route))]
    found, components = msgspec.json.schema_components(
        kinds, ref_template="#/components/schemas/{name}"
    )
    schemas = iter(found)
    problem = {"application/json": {"schema": next(schemas)}}
    paths: dict[str, Any] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.verb.lower()] = _operation(route, schemas, problem)
    return {
        "openapi": "3.1.0",
        "info": {"title": _TITLE, "version": version, "description": _ABOUT},
        "paths": paths,
        "components": {"schemas": components},
    }


def _kinds(route: Route) -> Iterator[Any]:
    """The types that a route's description speaks of, in order."""
    for each in route.parameters:
        if each.derived is None and each.kind is not Request:
            yield each.kind
    if _is_json(route):
        yield route.returns


def _is_json(route: Route) -> bool:
    is_response = isinstance(route.returns, type) and issubclass(route.returns, Response)
    return route.returns is not type(None) and not is_response


def _operation(route: Route, schemas: Iterator[Any], problem: dict[str, Any]) -> dict[str, Any]:
    parameters: list[dict[str, Any]] = []
    operation: dict[str, Any] = {
        "operationId": _NO_WORD.sub("_", route.asked).strip("_"),
        "tags": [route.tag],
        "description": _said(route),
        "parameters": parameters,
    }
    for each in route.parameters:
        if each.derived is not None:
            parameters += [_in_path(part, {"type": "string"}) for part in each.derived.parts]
        elif each.place is Place.PATH:
            parameters.append(_in_path(each.said, next(schemas)))
        elif each.place is Place.QUERY:
            parameters.append(
                {
                    "name": each.said,
                    "in": "query",
                    "required": each.is_needed,
                    "schema": next(schemas),
                }
            )
        elif each.place is Place.BODY:
            content = {"application/json": {"schema": next(schemas)}}
            operation["requestBody"] = {"required": each.is_needed, "content": content}
    if _is_json(route):
        done = {"200": {"description": "Done", "content": _json_of(next(schemas))}}
    elif route.returns is type(None):
        done = {"204": {"description": "Done"}}
    else:
        done = {"200": {"description": "Done"}}
    refused = {"description": _REFUSED, "content": problem}
    operation["responses"] = {**done, "default": refused}
    return operation


def _json_of(schema: Any) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _in_path(name: str, schema: Any) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _said(route: Route) -> str:
    return " ".join((route.handler.__doc__ or "").split())


def page_of(routes: Sequence[Route], version: str) -> bytes:
    """Returns the HTML page: a table of the routes for each tag."""
    title = escape(f"{_TITLE} {version}")
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f"<title>{title}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{title}</h1><p>{escape(_ABOUT)}</p>",
        '<p>Bodies, and all for programs: <a href="openapi.json">openapi.json</a>.</p>',
    ]
    for tag in dict.fromkeys(route.tag for route in routes):
        parts.append(f"<h2>{escape(tag)}</h2><table>")
        parts += [_row(route) for route in routes if route.tag == tag]
        parts.append("</table>")
    return "\n".join([*parts, "</body></html>"]).encode()


def _row(route: Route) -> str:
    query = ", ".join(
        f"<code>{escape(each.said)}</code>{' (needed)' if each.is_needed else ''}"
        for each in route.parameters
        if each.place is Place.QUERY
    )
    inputs = f"<br>Query: {query}" if query else ""
    return (
        f"<tr><td>{route.verb}</td><td><code>{escape(route.path)}</code></td>"
        f"<td>{escape(_said(route))}{inputs}</td></tr>"
    )
