"""`anabranch.admin` against what nodes serve: every operation, every field, in both forms."""

from __future__ import annotations

import asyncio
import functools
import inspect
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest

from anabranch.admin import Admin, AsyncAdmin, AutoScaleOverride, InvalidInputError
from anabranch.admin.calls import Call, RestMethod
from anabranch.broker.http.app import create_api
from anabranch.broker.http.description import openapi_of
from anabranch.core.autoscale.policy import OVERRIDE_FIELDS
from support.memory_cluster import memory_cluster

GROUPS: Final = (
    *("tenants", "namespaces", "placements", "bundles", "scalable_topics", "brokers"),
    *("lookups", "balance"),
)
# What load balancers and container platforms ask is no administration.
PROBES: Final = ("/livez", "/readyz", "/status.html", "/metrics", "/docs", "/openapi.json")
ARGUMENTS: Final[Mapping[str, Any]] = {
    "tenant": "acme",
    "namespace": "acme/shop",
    "bundle": "0x00000000_0x40000000",
    "topic": "acme/shop/orders",
    "kafka_topic": "old-orders",
    "partitioner": "murmur2",
    "segment_topic": "segment://acme/shop/orders/0000-7fff-1",
    "subscription": "billing",
    "topics": ["orders"],
    "name": "leadership",
    "value": "5",
    "cluster": "river",
    "broker": "b1:8080",
    "broker_id": 2,
    "admin_roles": [],
    "allowed_clusters": [],
    "properties": {"team": "shop"},
    "role": "ada",
    "actions": ["consume"],
    "policy": {"enabled": False},
    "key": "team",
    "segment_id": 7,
    "producer_id": 4711,
    "segment_id1": 8,
    "segment_id2": 9,
    "bucket_count": 4,
    "segment_count": 8,
    "to": "latest",
    "start": "latest",
    "force": True,
    "timestamp": 5,
    "policy_name": "gold",
    "domain": "east",
    "group": "apart",
    "namespaces": ["acme/.*"],
    "primary": ["b1"],
    "secondary": ["b2"],
    "brokers": ["b1:8080"],
    "settings": {"loadBalancerTransferEnabled": False},
    "cycles": 4,
    "limit": 4,
}


def operations(client: Admin | AsyncAdmin) -> dict[str, Any]:
    """By group and name, the functions that make calls."""
    found = {}
    for group in GROUPS:
        offered = getattr(client, group)
        for name, each in vars(type(offered)).items():
            if isinstance(each, RestMethod):
                found[f"{group}.{name}"] = functools.partial(each.call, offered)
    return found


def calls(operation: Any) -> list[Call[Any]]:
    """With the arguments that must be given, and with all that may be."""
    parameters = inspect.signature(operation).parameters.values()
    must = {each.name: ARGUMENTS[each.name] for each in parameters if each.default is each.empty}
    may = {
        each.name: ARGUMENTS[each.name]
        for each in parameters
        if each.name in ARGUMENTS and each.name not in must
    }
    return [operation(**must), operation(**must, **may)]


@pytest.fixture(scope="module")
def openapi() -> Any:
    async def found() -> Any:
        async with memory_cluster(1) as cluster:
            node = cluster.nodes[0]
            api = create_api(node.operations, node.settings, node.metrics)
            return openapi_of(api.routes, "1")

    return asyncio.run(found())


def test_every_operation_of_rest_has_a_method_and_no_other_exists(openapi: Any) -> None:
    served = {
        (verb.upper(), re.compile(re.sub(r"\{\w+\}", "[^/]+", path)), path)
        for path, verbs in openapi["paths"].items()
        if path not in PROBES
        for verb in verbs
    }
    left = {(verb, path) for verb, _, path in served}
    for name, operation in operations(Admin()).items():
        for call in calls(operation):
            # A fixed word of a path goes before a name.
            fitting = sorted(
                (path.count("{"), verb, path)
                for verb, pattern, path in served
                if verb == call.verb and pattern.fullmatch(call.path)
            )
            assert fitting, f"{name} asks {call.verb} {call.path}, which no node serves"
            _, verb, path = fitting[0]
            left.discard((verb, path))
            known = {
                each["name"]
                for each in openapi["paths"][path][verb.lower()].get("parameters", ())
                if each["in"] == "query"
            }
            assert set(call.query) <= known, name
            has_body = "requestBody" in openapi["paths"][path][verb.lower()]
            assert call.body is None or has_body, name
    assert not left, "anabranch.admin has no method for these"


def test_both_forms_have_the_same_methods() -> None:
    assert operations(Admin()).keys() == operations(AsyncAdmin()).keys()


def test_an_override_has_the_fields_of_a_policy() -> None:
    assert tuple(AutoScaleOverride.__annotations__) == OVERRIDE_FIELDS


@pytest.mark.parametrize(
    ("to", "why"),
    [
        (datetime(2026, 1, 31), "has no zone"),  # noqa: DTZ001 - that is the point
        (datetime(1969, 1, 31, tzinfo=UTC), "before 1970"),
    ],
)
def test_a_time_that_cannot_be_meant_is_refused_unsent(to: datetime, why: str) -> None:
    with Admin("http://nobody.invalid:1") as admin, pytest.raises(InvalidInputError, match=why):
        admin.scalable_topics.seek_subscription("public/default/orders", "billing", to)


def test_the_page_names_every_method() -> None:
    page = (Path(__file__).parents[3] / "docs" / "admin.md").read_text("utf-8")
    table = page[page.index("| group |") : page.index("## Errors")]
    words = set(re.findall(r"\w+", table))
    named = words | {f"{verb}_{word}" for verb in ("get", "set") for word in _kept(words)}
    assert {name.partition(".")[2] for name in operations(Admin())} <= named


def _kept(words: set[str]) -> list[str]:
    """`get_`, `set_` and `remove_x` stand for three methods."""
    return [
        word.removeprefix("remove_")
        for word in words
        if word.endswith("_policy") or "_max_" in word
    ]
