"""Questions to a running cluster over HTTP: `lookup`, `bundles`, `brokers`."""

from __future__ import annotations

import click

from anabranch.broker.cli.api import Api, json_option, quoted, url_option
from anabranch.broker.cli.output import table, write_json
from anabranch.core.names import parse_namespace, parse_topic


@click.command(
    epilog="Example: anabranch lookup persistent://public/default/orders --url http://node-1:8080"
)
@click.argument("topic")
@url_option
@json_option
def lookup(topic: str, url: str, as_json: bool) -> None:
    """Say which broker serves TOPIC ([domain://]tenant/namespace/name).

    Assigns the topic's bundle to a broker if nobody has it yet.
    """
    name, _ = parse_topic(topic)
    domain, _, rest = name.partition("://")
    tenant, namespace, local = rest.split("/", 2)
    path = f"/lookup/v2/topic/{domain}/{tenant}/{namespace}/{quoted(local)}"
    api = Api(url)
    found = api.get(path)
    part = api.get(path + "/bundle")
    if as_json:
        write_json({"topic": name, "bundle": part["bundle"], **found})
    else:
        click.echo(f"{name} is served by {found['httpUrl']} (bundle {part['bundle']})")


@click.command(epilog="Example: anabranch bundles public/default")
@click.argument("namespace", default="public/default")
@url_option
@json_option
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
@url_option
@json_option
def brokers(url: str, as_json: bool) -> None:
    """List the brokers that serve now, with how many bundles each owns, and who leads."""
    api = Api(url)
    status = api.get("/admin/v2/brokers/status")
    cluster = quoted(status["clusterName"])
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
