"""Who asks, for what, and whose rights a change has touched: told as a table each."""

from __future__ import annotations

import re
from typing import Final

import pytest

from anabranch.core.errors import InvalidInputError
from anabranch.core.security.actions import Action, Right, parse_actions
from anabranch.core.security.principal import Principal, spoken_for
from anabranch.core.security.resources import (
    CLUSTER,
    ResourceLevel,
    ResourceName,
    namespace_resource,
    tenant_resource,
    topic_resource,
)
from anabranch.core.security.table import REST, WIRE, resource_of

GATE = Principal("gate", method="token")
PARAMETER: Final = re.compile(r"\{([A-Za-z0-9]+)\}")
RESOURCES: Final = {
    ResourceLevel.CLUSTER: CLUSTER,
    ResourceLevel.TENANT: tenant_resource("tenant"),
    ResourceLevel.NAMESPACE: namespace_resource("tenant/namespace"),
    ResourceLevel.TOPIC: topic_resource("tenant/namespace/topic"),
}


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


def test_a_row_s_resource_is_named_by_its_path() -> None:
    for route, rule in REST.items():
        names = {name: name for name in PARAMETER.findall(route)}
        assert resource_of(rule, names) == RESOURCES[rule.level], route
        if rule.need.right in (Right.GRANTED, Right.TENANT_ADMIN):
            assert rule.level is not ResourceLevel.CLUSTER, route
    for rule in WIRE.values():
        assert rule.need.right in (Right.ANYONE, Right.GRANTED)
        assert (rule.level is ResourceLevel.CLUSTER) is (rule.need.right is Right.ANYONE)
    assert topic_resource("a/b/c/d") == ResourceName("a", "a/b", "a/b/c/d")
