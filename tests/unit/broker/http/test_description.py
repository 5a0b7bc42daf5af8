"""`/docs` of a node: all that it serves, on a page that needs nobody else."""

from __future__ import annotations

import base64
import hashlib

from anabranch.broker.http.description import page_of
from anabranch.broker.http.routing import RouteGroup
from support.http import HttpNode, on_nodes


@on_nodes()
async def test_the_page_describes_every_operation_and_asks_no_other_host(node: HttpNode) -> None:
    answer = await node.http.get("/docs")
    assert answer.headers["content-type"].startswith("text/html")
    policy = answer.headers["content-security-policy"]
    style = answer.text.partition("<style>")[2].partition("</style>")[0]
    its_hash = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert policy.startswith(f"default-src 'none'; style-src 'sha256-{its_hash}';")
    for path, verbs in (await node.http.get("/openapi.json")).json()["paths"].items():
        for verb in verbs:
            assert f"<td>{verb.upper()}</td><td><code>{path}</code></td>" in answer.text
    for word in ("<script", "<link", "<img", "<iframe", "@import", "url(", "src="):
        assert word not in answer.text
    assert answer.text.count("href=") == answer.text.count('href="openapi.json"') == 1


def test_what_a_description_says_is_text_and_no_markup() -> None:
    evil = "<script>alert(1)</script>"
    routes = RouteGroup(evil)

    @routes.get("/livez")
    async def get_it() -> None:
        pass

    get_it.__doc__ = evil
    page = page_of(routes.all, evil)
    assert page.count(b"&lt;script&gt;") == 4
    assert b"<script" not in page
