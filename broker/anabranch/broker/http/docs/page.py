"""`/docs`: the OpenAPI description as one page, which asks no other host for anything."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from html import escape
from typing import Any, Final

_METHODS: Final = ("get", "put", "post", "delete")
_STYLE: Final = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 60rem; padding: 1rem; }
code, h3 { font-family: ui-monospace, monospace; overflow-wrap: anywhere; }
h2 { border-bottom: 1px solid; margin-top: 3rem; }
h3 { font-size: 1rem; margin: 2rem 0 0; }
h3 b { display: inline-block; min-width: 4.5rem; }
nav ul { columns: 18rem; list-style: none; padding: 0; }
table { border-collapse: collapse; margin: .5rem 0; width: 100%; }
td, th { border: 1px solid #8884; padding: .2rem .5rem; text-align: left; vertical-align: top; }
p { margin: .3rem 0; }
"""

# Text in the page runs nothing and loads nothing, and no other site's frame shows the page.
_STYLE_HASH: Final = b64encode(sha256(_STYLE.encode()).digest()).decode()
CONTENT_POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)

Json = Mapping[str, Any]


def docs_page(openapi: Json) -> str:
    """HTML of an OpenAPI document: operations by tag, then the bodies that they speak of."""
    info = openapi["info"]
    title = escape(f"{info['title']} {info['version']}")
    tags = _by_tag(openapi)
    schemas: Json = openapi.get("components", {}).get("schemas", {})
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{title}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{title}</h1><p>{escape(info.get('description', ''))}</p>",
        '<p>For programs: <a href="openapi.json">openapi.json</a>.</p>',
        "<nav>",
        *(_contents(tag, found) for tag, found in tags.items()),
        "</nav>",
    ]
    for tag, found in tags.items():
        parts.append(f'<h2 id="{_anchor(tag)}">{escape(tag)}</h2>')
        parts += [_operation(path, verb, each) for path, verb, each in found]
    parts.append('<h2 id="bodies">bodies</h2>')
    parts += [_schema(name, each) for name, each in sorted(schemas.items())]
    parts.append("</body></html>")
    return "\n".join(parts)


_Found = list[tuple[str, str, Json]]


def _by_tag(openapi: Json) -> dict[str, _Found]:
    tags: dict[str, _Found] = {}
    for path, verbs in openapi["paths"].items():
        for verb in _METHODS:
            if verb in verbs:
                tag = next(iter(verbs[verb].get("tags", ())), "other")
                tags.setdefault(tag, []).append((path, verb, verbs[verb]))
    return tags


def _contents(tag: str, found: _Found) -> str:
    lines = "".join(
        f'<li><a href="#{each["operationId"]}">{escape(each.get("summary", path))}</a></li>'
        for path, _, each in found
    )
    return f'<h4><a href="#{_anchor(tag)}">{escape(tag)}</a></h4><ul>{lines}</ul>'


def _operation(path: str, verb: str, operation: Json) -> str:
    said = operation.get("description") or operation.get("summary", "")
    parts = [
        f'<section id="{operation["operationId"]}">',
        f"<h3><b>{verb.upper()}</b> {escape(path)}</h3>",
        *(f"<p>{escape(text)}</p>" for text in said.split("\n\n")),
        _table(("parameter", "in", "type", ""), list(_parameters(operation))),
        _table(("status", "answer", ""), list(_answers(operation))),
        "</section>",
    ]
    return "\n".join(part for part in parts if part)


def _parameters(operation: Json) -> Iterator[tuple[str, ...]]:
    for each in operation.get("parameters", ()):
        must = "" if each.get("required") else "may be left out"
        said = "; ".join(filter(None, (escape(each.get("description", "")), must)))
        yield f"<code>{escape(each['name'])}</code>", each["in"], _type(each["schema"]), said
    body = operation.get("requestBody")
    if body:
        must = "" if body.get("required") else "may be left out"
        said = "; ".join(filter(None, (escape(body.get("description", "")), must)))
        yield "", "body", _content(body), said


def _answers(operation: Json) -> Iterator[tuple[str, ...]]:
    for status, answer in sorted(operation["responses"].items()):
        yield status, _content(answer), escape(answer.get("description", ""))


def _content(holder: Json) -> str:
    return ", ".join(_type(each.get("schema", {})) for each in holder.get("content", {}).values())


def _schema(name: str, schema: Json) -> str:
    must = schema.get("required", ())
    rows = [
        (
            f"<code>{escape(field)}</code>",
            _type(each),
            escape(each.get("description", "")) + ("" if field in must else " <i>optional</i>"),
        )
        for field, each in schema.get("properties", {}).items()
    ]
    words = ", ".join(f"<code>{escape(str(word))}</code>" for word in schema.get("enum", ()))
    return (
        f'<section id="body-{escape(name)}"><h3>{escape(name)}</h3>'
        f"<p>{escape(schema.get('description', ''))}</p><p>{words}</p>"
        f"{_table(('field', 'type', ''), rows)}</section>"
    )


def _type(schema: Json) -> str:
    """A type in a word or two, with a link where it has fields."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#body-{name}">{name}</a>'
    if "anyOf" in schema:
        return " or ".join(map(_type, schema["anyOf"]))
    kind = schema.get("type", "any")
    if kind == "array":
        return f"array of {_type(schema.get('items', {}))}"
    more = schema.get("additionalProperties")
    if kind == "object" and isinstance(more, Mapping):
        return f"object of {_type(more)}"
    return escape(str(kind))


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """Cells are HTML already."""
    if not rows:
        return ""
    lines = "".join(f"<tr><td>{'</td><td>'.join(row)}</td></tr>" for row in rows)
    return f"<table><tr><th>{'</th><th>'.join(head)}</th></tr>{lines}</table>"


def _anchor(text: str) -> str:
    return re.sub(r"\W+", "-", text)
