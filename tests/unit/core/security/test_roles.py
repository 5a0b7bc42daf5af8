"""Who asks, for what, and whose rights a change has touched: told as a table each."""

from __future__ import annotations

import pytest

from anabranch.core.errors import InvalidInputError
from anabranch.core.security.actions import Action, parse_actions
from anabranch.core.security.principal import Principal, spoken_for
from anabranch.core.security.resources import (
    CLUSTER,
    ResourceName,
    namespace_resource,
    tenant_resource,
    topic_resource,
)
from anabranch.core.security.table import REST, resource_of

GATE = Principal("gate", method="token")


@pytest.mark.parametrize(
    ("speaker", "original", "found"),
    [
        (GATE, "ada", Principal("ada", "gate", "token")),
        (GATE, "gate", None),
        (GATE, "", None),
        (Principal("bob"), "ada", None),
        (Principal("gate", "gate"), "ada", None),
    ],
)
def test_a_proxy_alone_speaks_for_others(
    speaker: Principal, original: str, found: Principal | None
) -> None:
    assert spoken_for(speaker, original, {"gate"}) == found


def test_an_action_is_named_by_its_word_once_and_in_order() -> None:
    assert parse_actions(["view", "consume", "view"]) == (Action.CONSUME, Action.VIEW)
    for words in ([], ["view", "functions"]):
        with pytest.raises(InvalidInputError, match="give some of consume, produce, scale"):
            parse_actions(words)


@pytest.mark.parametrize(
    ("row", "found", "told"),
    [
        ("GET /livez", CLUSTER, "cluster"),
        ("GET /admin/v2/tenants/{tenant}", tenant_resource("a"), "a"),
        ("GET /admin/v2/namespaces/{tenant}/{namespace}", namespace_resource("a/b"), "a/b"),
        (
            "GET /admin/v2/scalable/{tenant}/{namespace}/{topic}",
            ResourceName("a", "a/b", "a/b/c/d"),
            "a/b/c/d",
        ),
    ],
)
def test_a_row_says_what_its_request_is_about(row: str, found: ResourceName, told: str) -> None:
    names = {"tenant": "a", "namespace": "b", "topic": "c/d"}
    assert (resource_of(REST[row], names), str(found)) == (found, told)
    assert topic_resource("a/b/c/d") == ResourceName("a", "a/b", "a/b/c/d")
