"""Pages of other sites may not send requests, by whatever name they reach the node."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from anabranch.broker.http.guards.origins import OriginMiddleware
from anabranch.broker.settings import SettingsError, load_settings
from support.http import HttpNode, on_nodes

BROWSER = {"User-Agent": "Mozilla/5.0 (X11; Linux) Gecko/20100101 Firefox/140.0"}
PATH = "/admin/v2/tenants/acme"
BODY = {"allowedClusters": ["standalone"]}


async def _nothing(*_: object) -> None:
    """An application."""


def status(method: str = "POST", *, settings: dict[str, str] | None = None, **headers: Any) -> int:
    """What becomes of a request with these headers; 200 when it is served."""
    named = {"advertisedAddress": "node-1.example.com", "webServicePort": 8080, **(settings or {})}
    site = OriginMiddleware(_nothing, load_settings(None, {}, named))
    pairs = [(k.replace("_", "-").encode(), v.encode()) for k, v in headers.items()]
    refused = site.refuses(method, pairs)
    return 200 if refused is None else int(refused[0])


OWN = ("127.0.0.1:8080", "[::1]:8080", "10.1.2.3", "localhost:8080", "Node-1.Example.COM:8080")


@pytest.mark.parametrize("host", OWN)
def test_the_nodes_own_pages_may_send_requests(host: str) -> None:
    origin = f"http://{host.lower()}"
    assert status(host=host, origin=origin, user_agent="Mozilla/5.0") == 200
    assert status(host=host, origin=origin.replace("8080", "9090")) == (
        403 if "8080" in host else 200
    )


def test_another_sites_pages_may_not() -> None:
    origins = ("http://evil.example", "https://localhost", "null", "http://127.0.0.1:9999", "//[")
    for method, origin in itertools.product(("GET", "POST", "PUT", "DELETE", "OPTIONS"), origins):
        assert status(method, host="localhost:8080", origin=origin) == 403, (method, origin)


def test_a_name_that_another_site_points_here_is_refused_to_browsers() -> None:
    """Then Origin and Host are the same."""
    rebound: dict[str, Any] = {"host": "evil.example:8080", "origin": "http://evil.example:8080"}
    assert status(**rebound) == 421
    assert status("GET", host="evil.example:8080", user_agent="Mozilla/5.0 (X11)") == 421
    assert status("GET", host="evil.example:8080", sec_fetch_site="same-origin") == 421
    assert status("GET", host="localhost.evil.example", user_agent="Mozilla/5.0") == 421
    assert status("GET", host="[", user_agent="Mozilla/5.0") == 421


def test_programs_may_know_the_node_by_any_name_unless_the_names_are_listed() -> None:
    for agent in ("curl/8.5.0", "Pulsar-Java-v5.0.0-M1", "python-httpx/0.28"):
        assert status(host="river.internal:8080", user_agent=agent) == 200
    listed = {"webServiceAllowedHosts": "river.internal, other"}
    assert status(settings=listed, host="river.internal:8080") == 200
    assert status(settings=listed, host="node-1.example.com:8080") == 200
    assert status(settings=listed, host="10.0.0.1:8080") == 200
    assert status(settings=listed, host="elsewhere:8080") == 421
    assert status("GET", settings=listed, host="river.internal", user_agent="Mozilla/5.0") == 200


def test_what_a_browser_says_comes_from_another_site_changes_nothing() -> None:
    assert status("POST", host="localhost", sec_fetch_site="cross-site") == 403
    assert status("GET", host="localhost", sec_fetch_site="cross-site") == 200  # a link to a page
    assert status("POST", host="localhost", sec_fetch_site="same-origin") == 200


def test_of_two_origins_neither_is_believed() -> None:
    site = OriginMiddleware(_nothing, load_settings(None, {}, {}))
    for first, second in itertools.permutations((b"http://evil.example", b"http://localhost")):
        headers = [(b"host", b"localhost"), (b"origin", first), (b"origin", second)]
        status, why = site.refuses("GET", headers) or (200, "")
        assert (status, "several Origin headers" in why) == (403, True)


@on_nodes()
async def test_a_refusal_names_the_setting_and_nothing_is_done(node: HttpNode) -> None:
    http = node.http
    cross = await http.put(PATH, json=BODY, headers={"Origin": "http://evil.example"})
    assert cross.status_code == 403
    assert "http://evil.example" in cross.json()["reason"]
    rebound = await http.put(PATH, json=BODY, headers={"Host": "evil.example", **BROWSER})
    assert rebound.status_code == 421
    assert "webServiceAllowedHosts" in rebound.json()["reason"]
    for quick in ("/lookup/v2/topic/topic/public/default/t", "/admin/v2/scalable/a/b/c"):
        assert (await http.get(quick, headers={"Origin": "http://evil.example"})).status_code == 403
    assert (await http.get(PATH)).status_code == 404
    assert (await http.put(PATH, json=BODY, headers=BROWSER)).status_code == 204


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("webServiceAllowedHosts", "https://a.example"),
        ("webServiceAllowedHosts", "a.example:8080"),
    ],
)
def test_what_is_no_origin_or_name_is_refused_at_the_start(name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=f"{name} .flag."):
        load_settings(None, {}, {name: value})
