"""Questions to a running cluster over HTTP: `lookup`, `bundles`, `brokers`."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote

import click
import httpx

from anabranch.broker.cli.output import table, write_json
from anabranch.core.errors import AnabranchError
from anabranch.core.names import parse_namespace, parse_topic

_SECONDS_MAX: Final = 30.0
STALE_HEADER: Final = "X-Anabranch-Stale"

_url = click.option(
    "--url",
    default="http://127.0.0.1:8080",
    show_default=True,
    help="A node of the cluster; any will do.",
)
_as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


class UnreachableError(AnabranchError):
    """No node answers at the given address."""


class RefusedError(click.ClickException):
    """The node refused; its reason is the message."""

    exit_code = 1


class Api:
    """A node's HTTP interface."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        self._client = httpx.Client(timeout=_SECONDS_MAX)

    def get(self, path: str) -> Any:
        """The decoded answer. Raises UnreachableError or RefusedError."""
        try:
            answer = self._client.get(self._url + path)
        except (httpx.TransportError, httpx.InvalidURL) as error:
            raise UnreachableError(
                f"no node answers at {self._url} ({error}); start one with `anabranch dev`, or "
                "name another with --url"
            ) from error
        if answer.headers.get(STALE_HEADER):
            click.echo(
                "anabranch: the node cannot reach the log; its answer may be out of date", err=True
            )
        try:
            said = answer.json()
        except ValueError as error:
            raise UnreachableError(
                f"{self._url} answers {answer.status_code} without JSON; is it a node?"
            ) from error
        if answer.is_success:
            return said
        reason = said.get("reason", said) if isinstance(said, dict) else said
        raise RefusedError(f"{answer.status_code}: {reason}")


@click.command(
    epilog="Example: anabranch lookup persistent://public/default/orders --url http://node-1:8080"
)
@click.argument("topic")
@_url
@_as_json
def lookup(topic: str, url: str, as_json: bool) -> None:
    """Say which broker serves TOPIC ([domain://]tenant/namespace/name).

    Assigns the topic's bundle to a broker if nobody has it yet.
    """
    name, _ = parse_topic(topic)
    domain, _, rest = name.partition("://")
    tenant, namespace, local = rest.split("/", 2)
    path = f"/lookup/v2/topic/{domain}/{tenant}/{namespace}/{quote(local, safe='')}"
    api = Api(url)
    found = api.get(path)
    part = api.get(path + "/bundle")
    if as_json:
        write_json({"topic": name, "bundle": part["bundle"], **found})
    else:
        click.echo(f"{name} is served by {found['httpUrl']} (bundle {part['bundle']})")


@click.command(epilog="Example: anabranch bundles public/default")
@click.argument("namespace", default="public/default")
@_url
@_as_json
def bundles(namespace: str, url: str, as_json: bool) -> None:
    """List the bundles of NAMESPACE (tenant/name; public/default if left out)."""
    home = parse_namespace(namespace)
    found = Api(url).get(f"/admin/v2/namespaces/{home}/bundles/ownership")
    if as_json:
        write_json(found)
        return
    rows = [
        (item["bundle"], item["state"], item["broker"] or "-", str(item["version"]))
        for item in found["bundles"]
    ]
    table(("BUNDLE", "STATE", "BROKER", "VERSION"), rows)


@click.command(epilog="Example: anabranch brokers --json")
@_url
@_as_json
def brokers(url: str, as_json: bool) -> None:
    """List the brokers that serve now, with how many bundles each owns, and who leads."""
    api = Api(url)
    status = api.get("/admin/v2/brokers/status")
    cluster = quote(status["clusterName"], safe="")
    found = [
        {
            "brokerId": broker,
            "bundles": len(api.get(f"/admin/v2/brokers/{cluster}/{broker}/ownedNamespaces")),
            "leader": broker == status["leader"],
        }
        for broker in api.get("/admin/v2/brokers")
    ]
    if as_json:
        write_json({"clusterName": status["clusterName"], "brokers": found})
        return
    rows = [
        (item["brokerId"], str(item["bundles"]), "leader" if item["leader"] else "")
        for item in found
    ]
    table(("BROKER", "BUNDLES", ""), rows)
