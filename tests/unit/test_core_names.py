"""Names at the edge: what is accepted, and that a refusal names the thing and the form."""

from __future__ import annotations

import pytest

from anabranch.core.errors import InvalidInputError
from anabranch.core.names import (
    broker_id,
    namespace,
    parse_namespace,
    parse_topic,
    tenant,
    tenant_of,
    topic,
)
from anabranch.core.records import namespace_key, scope_of, session_key, tenant_key
from anabranch.core.units import LEADERSHIP


@pytest.mark.parametrize("name", ["public", "a", "A-b_c.d=1", "x" * 255])
def test_tenant_names_that_are_accepted(name: str) -> None:
    assert tenant(name) == name


@pytest.mark.parametrize("name", ["", "a b", "a/b", "a:b", "é", "x" * 256, "a\n"])
def test_tenant_names_that_are_refused(name: str) -> None:
    with pytest.raises(InvalidInputError, match="tenant name"):
        tenant(name)


def test_namespaces_have_two_parts() -> None:
    assert parse_namespace("public/default") == namespace("public", "default")
    assert tenant_of(parse_namespace("public/default")) == "public"
    for wrong in ("public", "a/b/c", "", "a/"):
        with pytest.raises(InvalidInputError, match="namespace"):
            parse_namespace(wrong)


def test_topics_have_a_domain_a_namespace_and_a_rest() -> None:
    name, home = parse_topic("topic://acme/orders/eu/2026")
    assert (name, home) == ("topic://acme/orders/eu/2026", "acme/orders")
    assert parse_topic("acme/orders/eu")[0] == "persistent://acme/orders/eu"
    for wrong in ("orders", "acme/orders", "acme/orders/", "memory://acme/orders/x", "://a/b/c"):
        with pytest.raises(InvalidInputError, match="topic"):
            parse_topic(wrong)
    with pytest.raises(InvalidInputError, match="topic name"):
        topic(home, "x" * 2000)


@pytest.mark.parametrize("name", ["host:8080", "10.0.0.1:1", "[::1]:8080", "a-b.c_d:65535"])
def test_broker_ids_that_are_accepted(name: str) -> None:
    assert broker_id(name) == name


@pytest.mark.parametrize("name", ["host", "host:", ":80", "a b:80", "a/b:80", "host:65536"])
def test_broker_ids_that_are_refused(name: str) -> None:
    with pytest.raises(InvalidInputError, match=r"host:webPort"):
        broker_id(name)


def test_a_keys_scope_is_its_tenant_or_the_whole_cluster() -> None:
    assert scope_of("acme/orders/0x00000000_0x40000000") == "acme"
    assert scope_of(namespace_key("acme/orders")) == "acme"
    assert scope_of(tenant_key("acme")) == "acme"
    for shared in (LEADERSHIP, "cluster", session_key("b:8080"), session_key("[::1]:8080")):
        assert scope_of(shared) == ""
