"""Names at the edge: what is accepted, and that a refusal names the thing and the form."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from anabranch.core import names
from anabranch.core.entities.unit import LEADERSHIP
from anabranch.core.errors import InvalidInputError
from anabranch.core.log.records import namespace_key, scope_of, session_key, tenant_key


@pytest.mark.parametrize("name", ["public", "a", "A-b_c.d=1", "x" * 255])
def test_tenant_names_that_are_accepted(name: str) -> None:
    assert names.tenant(name) == name


@pytest.mark.parametrize("name", ["", "a b", "a/b", "a:b", "é", "x" * 256, "a\n"])
def test_tenant_names_that_are_refused(name: str) -> None:
    with pytest.raises(InvalidInputError, match="tenant name"):
        names.tenant(name)


def test_namespaces_have_two_parts() -> None:
    assert names.parse_namespace("public/default") == names.namespace("public", "default")
    assert names.tenant_of(names.parse_namespace("public/default")) == "public"
    for wrong in ("public", "a/b/c", "", "a/"):
        with pytest.raises(InvalidInputError, match="namespace"):
            names.parse_namespace(wrong)


def test_topics_have_a_domain_a_namespace_and_a_rest() -> None:
    name, home = names.parse_topic("topic://acme/orders/eu/2026")
    assert (name, home) == ("topic://acme/orders/eu/2026", "acme/orders")
    assert names.parse_topic("acme/orders/eu")[0] == "topic://acme/orders/eu"
    for wrong in ("orders", "acme/orders", "acme/orders/", "memory://acme/orders/x", "://a/b/c"):
        with pytest.raises(InvalidInputError, match="topic"):
            names.parse_topic(wrong)
    assert names.topic(home, "x" * 1020).endswith("/" + "x" * 1020)
    with pytest.raises(InvalidInputError, match="topic name"):
        names.topic(home, "x" * 1021)
    assert names.parse_topic("topic://acme/orders/eu://x") == ("topic://acme/orders/eu://x", home)


def test_the_domain_of_a_scalable_topic_is_what_its_name_begins_with() -> None:
    with pytest.raises(InvalidInputError, match="is not of the form topic://"):
        names.parse_scalable_topic("topic://acme/orders/eu://x")


def test_a_refusal_says_what_the_name_is_of() -> None:
    with pytest.raises(InvalidInputError, match=r"^tenant name 'a b'"):
        names.namespace("a b", "orders")
    with pytest.raises(InvalidInputError, match=r"^namespace name 'a b'"):
        names.namespace("acme", "a b")
    with pytest.raises(InvalidInputError, match=r"^subscription name 'a b'"):
        names.subscription("a b")
    with pytest.raises(InvalidInputError, match=r"^consumer name 'a b'"):
        names.consumer("a b")


@pytest.mark.parametrize("dots", [".", ".."])
def test_what_every_path_loses_is_no_name(dots: str) -> None:
    named: tuple[tuple[Callable[[str], object], str], ...] = (
        (names.tenant, dots),
        (names.subscription, dots),
        (names.consumer, dots),
        (names.parse_namespace, f"{dots}/default"),
        (names.parse_namespace, f"public/{dots}"),
        (names.parse_topic, f"persistent://public/default/{dots}"),
        (names.parse_scalable_topic, f"topic://public/default/{dots}"),
        (names.parse_scalable_topic, f"{dots}/default/orders"),
    )
    for check, name in named:
        with pytest.raises(InvalidInputError, match=f"name '{re.escape(dots)}' is not valid"):
            check(name)
        assert not names.is_valid(check, name)


@pytest.mark.parametrize("name", ["host:8080", "10.0.0.1:1", "[::1]:8080", "a-b.c_d:65535"])
def test_broker_ids_that_are_accepted(name: str) -> None:
    assert names.broker_id(name) == name


@pytest.mark.parametrize("name", ["host", "host:", ":80", "a b:80", "a/b:80", "host:65536"])
def test_broker_ids_that_are_refused(name: str) -> None:
    with pytest.raises(InvalidInputError, match=r"host:webPort"):
        names.broker_id(name)


def test_a_keys_scope_is_its_tenant_or_the_whole_cluster() -> None:
    assert scope_of("acme/orders/0x00000000_0x40000000") == "acme"
    assert scope_of(namespace_key("acme/orders")) == "acme"
    assert scope_of(tenant_key("acme")) == "acme"
    assert scope_of("permission:acme/orders/eu:a/b:c") == "acme"
    for shared in (LEADERSHIP, "cluster", session_key("b:8080"), session_key("[::1]:8080")):
        assert scope_of(shared) == ""
