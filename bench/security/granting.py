"""How long a grant, or a revocation, takes until all go by it: nodes, a proxy, and Kafka.

The nodes ask who comes; the leader makes ACLs on Kafka of what is granted. Each change is asked of
another node, and from then on every place is asked in turn, as the role that it is about, until it
answers by it; Kafka is asked which ACLs its broker has for that role.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import time
from collections.abc import Callable, Iterator
from functools import cache
from typing import Final

from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from anabranch.devkit.kafka.embedded import EmbeddedKafka
from anabranch.devkit.kafka.settings import Differences
from anabranch.devkit.nodes import await_ready, stop_all
from anabranch.devkit.security import ADMIN, DevSecurity
from bench.figure import Measured, spread
from bench.http.asker import Asker, bearer
from bench.nodes.proxying import proxy_before
from bench.place import NODES, Place

_GOAL_MS: Final = 100.0
_REPEATS: Final = 30
_WARM_UP: Final = 2
_WAIT_S: Final = 60.0
_ROLE: Final = "ada"
_OF_PROXY: Final = (
    "authenticationEnabled",
    "tokenSecretKey",
    "brokerClientAuthenticationParameters",
)
_TOPIC: Final = "/admin/v2/scalable/public/default/granted"
_GRANT: Final = f"/admin/v2/namespaces/public/default/permissions/{_ROLE}"
_KAFKA, _PROXY = "Kafka", "proxy"

Answers = Callable[[], bool]  # whether the role may, by what is answered there


def median(place: Place) -> Measured:
    """Of grants and revocations, the last place of each."""
    found = _measured(place)
    value = statistics.median(found["last"])
    return Measured(value, "ms", value, _GOAL_MS, details=_told(found))


def worst(place: Place) -> Measured:
    """The slowest of all."""
    found = _measured(place)
    value = max(found["last"])
    return Measured(value, "ms", value, _GOAL_MS, details=_told(found))


def _told(found: dict[str, list[float]]) -> dict[str, object]:
    return {where: spread(took) for where, took in found.items()}


@cache
def _measured(place: Place) -> dict[str, list[float]]:
    """Milliseconds from the request of a change until it was accepted, until each place answered by
    it, and until the last one did.
    """
    repeats = 3 if place.quick else _REPEATS
    with _scene(place) as (roots, places):
        found: dict[str, list[float]] = {each: [] for each in ("accepted", *places, "last")}
        for number in range(_WARM_UP + 2 * repeats):
            took = _changed(roots[number % len(roots)], places, is_grant=number % 2 == 0)
            if number >= _WARM_UP:
                for where, each in took.items():
                    found[where].append(each)
    return found


def _changed(root: Asker, places: dict[str, Answers], *, is_grant: bool) -> dict[str, float]:
    took: dict[str, float] = {}
    began = time.perf_counter()
    if is_grant:
        root.must("POST", _GRANT, json.dumps(["consume"]).encode())
    else:
        root.must("DELETE", _GRANT)
    took["accepted"] = (time.perf_counter() - began) * 1_000
    waiting = dict(places)
    while waiting:
        for where, may in list(waiting.items()):
            if may() is is_grant:
                took[where] = (time.perf_counter() - began) * 1_000
                del waiting[where]
        if time.perf_counter() - began > _WAIT_S:
            raise RuntimeError(f"not within {_WAIT_S:.0f} s at {', '.join(waiting)}")
    took["last"] = max(took.values())
    return took


@contextlib.contextmanager
def _scene(place: Place) -> Iterator[tuple[list[Asker], dict[str, Answers]]]:
    """Who may grant, by each node; and the places that have to go by it."""
    folder = place.folder / f"granting-{place.number()}"
    security = DevSecurity(folder)
    secret = security.secret_file.read_bytes()
    asks = tuple(each for each in security.settings if not each.startswith("tls"))
    kafka = _kafka_with_acls(place)
    prefix = f"bench-granting-{place.number()}."
    nodes = [
        place.lonely_node(prefix, *asks, "kafkaAclsEnabled=true", kafka=kafka) for _ in range(NODES)
    ]
    try:
        for node in nodes:
            node.start()
        await_ready(nodes)
        # To nodes it is one of them, which may ask for somebody else.
        of_proxy = [each for each in asks if each.startswith(_OF_PROXY)]
        with proxy_before(place, nodes[0].url, *of_proxy) as (url, _):
            ada, root = bearer(secret, _ROLE), bearer(secret, ADMIN)
            roots = [Asker(node.port, root) for node in nodes]
            _make_topic(roots)
            at_proxy = Asker(int(url.rpartition(":")[2]), ada)
            places = {node.name: _sees(Asker(node.port, ada)) for node in nodes}
            yield roots, {**places, _PROXY: _sees(at_proxy), _KAFKA: _has_acls(kafka)}
    finally:
        stop_all(nodes)
        kafka.stop()


def _make_topic(roots: list[Asker]) -> None:
    """By the node that controls it, which the others would send it on to."""
    answers = [root.ask("PUT", _TOPIC) for root in roots]
    if not any(status == 204 for status, _ in answers):
        raise RuntimeError(f"PUT {_TOPIC} was refused by all: {answers!r:.1000}")


def _kafka_with_acls(place: Place) -> EmbeddedKafka:
    """One of its own, that goes by ACLs; nodes may do everything there."""
    rules = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    folder = place.folder / f"kafka-{place.number()}"
    kafka = EmbeddedKafka(folder, differences=Differences(rules))
    kafka.start()
    return kafka


def _sees(asker: Asker) -> Answers:
    """Whether the topic is there for who asks. Raises RuntimeError for any other answer."""

    def may() -> bool:
        status, answer = asker.ask("GET", _TOPIC)
        if status not in (200, 404):
            raise RuntimeError(f"GET {_TOPIC}: {answer!r:.300}")
        return status == 200

    return may


def _has_acls(kafka: EmbeddedKafka) -> Answers:
    """Whether the broker has rules for the role's principal."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 3})
    # The library's types do not know that a name may be left open.
    any_of_it = AclBindingFilter(
        ResourceType.ANY,
        None,  # type: ignore[arg-type]
        ResourcePatternType.ANY,
        f"User:{_ROLE}",
        None,  # type: ignore[arg-type]
        AclOperation.ANY,
        AclPermissionType.ANY,
    )

    def has() -> bool:
        return bool(admin.describe_acls(any_of_it).result(_WAIT_S))

    return has
