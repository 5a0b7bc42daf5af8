"""`anabranch doctor` asks a Kafka once, and by the tokens that this Kafka takes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from anabranch.access import cloud_tokens
from anabranch.access.kafka_tokens import OAUTH_CB
from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.kafka.makes import APACHE, said
from anabranch.channel.kafka.topics import Inspection
from anabranch.cli.node import doctor
from anabranch.cli.node.findings import Finding
from anabranch.cli.shared.flags import settings_of

MSK = "b-1.river.x1y2z3.c4.kafka.eu-central-1.amazonaws.com:9098"


def _as_client(monkeypatch: pytest.MonkeyPatch, told: str) -> tuple[list[Finding], list[str]]:
    """The findings beside a node that tells this Kafka, and the regions of the tokens for it."""
    regions = []

    def examine_kafka(connection: KafkaConnection) -> Iterator[Finding]:
        regions.append(connection.security[OAUTH_CB]._provider.keywords["region"])
        yield Finding("kafka broker 1", ok=True, found="")

    monkeypatch.setattr(doctor, "administer", lambda *_: contextlib.nullcontext())
    for name in ("_answers", "_service", "_concerns"):
        monkeypatch.setattr(doctor, name, lambda *_: "well")
    monkeypatch.setattr(doctor, "_told", lambda _: told)
    monkeypatch.setattr(doctor, "examine_kafka", examine_kafka)
    provider: Any = ("kafkaTokenProvider=aws",)
    given = dict.fromkeys(("config", "bootstrap_servers", "kafka_properties", "data_dir"))
    return list(doctor._examine_as_client("http://node:8080", **given, settings=provider)), regions


def test_a_cloud_s_tokens_are_for_the_kafka_that_a_node_tells(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(cloud_tokens._MODULES, "aws", "json")
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    found, regions = _as_client(monkeypatch, MSK)
    assert (all(each.ok for each in found), regions) == (True, ["eu-central-1"])
    found, regions = _as_client(monkeypatch, "kafka:9092")
    assert [each.check for each in found if not each.ok] == ["kafka"]
    assert ("set AWS_REGION" in found[-1].found, len(found), regions) == (True, 5, [])


def test_kafka_s_make_is_told_by_the_one_look_at_its_topics(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(doctor, "inspect_topics", lambda *_: Inspection(3, APACHE, ["t"], []))
    monkeypatch.setattr(doctor, "examine_kafka", lambda _: iter(()))
    monkeypatch.setattr(doctor, "_calls", lambda _: Finding("kafka's calls", True, "not asked"))
    found = {
        each.check: each
        for each in doctor._kafka(settings_of(None, None, None, None, ()), probe=False)
    }
    assert found["kafka"].found.endswith("3 brokers, 1 topic there and sound")
    assert found["kafka's make"].found == said(APACHE)
