"""`/docs` of a node: all that it serves, on a page that needs nobody else."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import Mapping
from html.parser import HTMLParser
from typing import Any

import pytest

from anabranch.broker.http.docs import pages
from anabranch.broker.http.docs.page import docs_page
from support.http import HttpNode, on_nodes

_VOID = ("meta", "br", "link", "img", "input")


class _Page(HTMLParser):
    """What a browser sees; fails on tags that do not close."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []
        self.anchors: list[str] = []
        self.tags: set[str] = set()
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            assert name not in ("src", "srcset", "style", "onclick"), f"{tag} has {name}={value}"
            if name == "href":
                self.links.append(value or "")
            if name == "id":
                self.anchors.append(value or "")
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@on_nodes()
async def test_the_page_describes_every_operation_and_asks_no_other_host(node: HttpNode) -> None:
    answer = await node.http.get("/docs")
    assert answer.headers["content-type"].startswith("text/html")
    policy = answer.headers["content-security-policy"]
    style = answer.text.partition("<style>")[2].partition("</style>")[0]
    its_hash = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert policy.startswith(f"default-src 'none'; style-src 'sha256-{its_hash}';")
    page = _Page(answer.text)
    description = (await node.http.get("/openapi.json")).json()
    for path, verbs in description["paths"].items():
        for verb, operation in verbs.items():
            assert f"{verb.upper()} {path}\n" in page.text
            assert operation["operationId"] in page.anchors
    for name, schema in description["components"]["schemas"].items():
        assert f"body-{name}" in page.anchors
        assert all(field in page.text for field in schema.get("properties", ()))
    # No script, no picture, no other page: only anchors here and the node's own description.
    assert not page.tags & {"script", "link", "img", "iframe", "object"}
    assert "@import" not in answer.text
    assert "url(" not in answer.text
    inside = {f"#{anchor}" for anchor in page.anchors}
    assert len(page.anchors) == len(set(page.anchors))
    assert set(page.links) - inside == {"openapi.json"}


def test_what_a_description_says_is_text_and_no_markup() -> None:
    evil = "<script>alert(1)</script>"
    operation: dict[str, Any] = {
        "operationId": "get_it",
        "summary": evil,
        "description": evil,
        "parameters": [
            {"name": evil, "in": "query", "schema": {"type": evil}, "description": evil}
        ],
        "responses": {"200": {"description": evil}},
    }
    schema = {"description": evil, "properties": {evil: {"type": "string", "description": evil}}}
    page = _Page(
        docs_page(
            {
                "info": {"title": evil, "version": evil, "description": evil},
                "paths": {f"/{evil}": {"get": operation}},
                "components": {"schemas": {"Body": schema}},
            }
        )
    )
    assert "script" not in page.tags
    assert page.text.count(evil) >= 8


@on_nodes()
async def test_what_anybody_may_ask_for_is_made_once(
    node: HttpNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    def page(openapi: Mapping[str, Any]) -> str:
        made.append(openapi["info"]["title"])
        return docs_page(openapi)

    monkeypatch.setattr(pages, "docs_page", page)
    paths = ["/docs", "/openapi.json"] * 10
    answers = await asyncio.gather(*(node.http.get(path) for path in paths))
    assert {answer.status_code for answer in answers} == {200}
    assert (len({answer.content for answer in answers}), len(made)) == (2, 1)
