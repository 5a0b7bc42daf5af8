"""What a Kafka's answers to `anabranch doctor --probe` mean, one sentence each."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from anabranch.channel.kafka.makes import APACHE, MAKES, Make, Proof, make_of, said
from anabranch.channel.segments.admin import SegmentSettings, new_topic
from anabranch.cli.node import judgement
from anabranch.cli.node.judgement import Ends

_KAFKA_43 = dict.fromkeys([*range(58), 60, 66, 68, 69, 76, 77, 78, 79, 90, 91], 2)
_KAFKA_40 = {n: v for n, v in _KAFKA_43.items() if not 76 <= n <= 91}
_WANTED = new_topic(SegmentSettings(), "t", 1).config or {}


def _make(name: str) -> Make:
    return next(each for each in MAKES if each.name == name)


_REDPANDA = _make("Redpanda")


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("broker-1.example.com", "Apache Kafka"),
        ("pkc-4r297.europe-west1.gcp.confluent.cloud", "Confluent Cloud"),
        ("boot-ab12.c1.kafka-serverless.us-east-1.amazonaws.com", "MSK Serverless"),
        ("b-1.demo.a1b2c3.c4.kafka.us-east-1.amazonaws.com", "MSK"),
        ("EVENTS.servicebus.windows.net.", "Event Hubs"),
        ("kafka-1-project.aivencloud.com", "Aiven"),
        ("bootstrap.c.us-central1.managedkafka.p.cloud.goog", "Google"),
        ("api-1.warpstream.com", "WarpStream"),
        ("seed-1.abc.fmc.prd.cloud.redpanda.com", "Redpanda"),
        ("redpanda.com.example.org", "Apache Kafka"),
    ],
)
def test_the_names_of_brokers_tell_the_make(host: str, name: str) -> None:
    assert make_of(["localhost", host], "abc").name == name


def test_each_make_on_which_nothing_is_proven_says_so() -> None:
    assert {make.name for make in MAKES if "unproven" in said(make)} == {
        make.name for make in MAKES if make.seal is Proof.UNPROVEN
    }


@pytest.mark.parametrize(
    ("lacks", "ok", "found"),
    [
        ([], True, "all"),
        ([44], False, "no segment can be sealed"),
        ([19, 22], False, "no topic can be made .*; producers cannot run"),
        ([76, 78, 79], True, "all but: queues need Kafka 4.2"),
        ([90], True, "all but: positions of queues cannot be set"),
        ([30], True, "all but: kafkaAclsEnabled cannot be used"),
        ([68], True, "all but: plain consumers"),
    ],
)
def test_a_call_that_is_missing_is_told_by_its_cost(
    lacks: Sequence[int], ok: bool, found: str
) -> None:
    calls = {number: newest for number, newest in _KAFKA_43.items() if number not in lacks}
    finding = judgement.judge_calls(calls)
    assert finding.ok is ok
    assert re.match(found, finding.found), finding.found


def test_share_groups_of_a_preview_are_none() -> None:
    assert judgement.has_queues(_KAFKA_43)
    assert not judgement.has_queues({**_KAFKA_43, 78: 1})
    assert not judgement.has_queues(_KAFKA_40)


def test_a_setting_that_is_taken_and_not_kept_shows_when_it_is_read_back() -> None:
    assert judgement.judge_settings(_WANTED, _WANTED).ok
    dropped = judgement.judge_settings(_WANTED, {**_WANTED, "retention.ms": "604800000"})
    assert not dropped.ok
    assert "took retention.ms=-1, has 604800000" in dropped.found
    silent = judgement.judge_settings(_WANTED, {})
    assert (silent.ok, silent.found.count("has nothing")) == (False, len(_WANTED))
    own = {n: v for n, v in _WANTED.items() if n != "min.insync.replicas"}
    assert judgement.judge_settings(_WANTED, own).ok, "Redpanda has other rules on that"
    refused = judgement.judge_settings(_WANTED, {}, "replication factor must be odd")
    assert (refused.ok, "must be odd" in refused.found) == (False, True)


@pytest.mark.parametrize("answer", ["", "MSG_SIZE_TOO_LARGE", "nothing"])
def test_an_append_from_the_future_must_be_refused_for_its_time(answer: str) -> None:
    assert judgement.judge_bound("INVALID_TIMESTAMP").ok
    assert not judgement.judge_bound(answer).ok


def test_an_append_that_is_taken_after_a_seal_is_a_failure_on_every_make() -> None:
    for make in (APACHE, *MAKES):
        taken = judgement.judge_seal(make, {"max.message.bytes": "78"}, "")
        assert (taken.ok, "takes appends after a seal" in taken.found) == (False, True)


def test_a_seal_by_one_byte_says_that_transactions_hang_and_redpandas_that_it_is_unproven() -> None:
    sealed = "MSG_SIZE_TOO_LARGE"
    usual = judgement.judge_seal(APACHE, {"max.message.bytes": "78"}, sealed)
    assert (usual.ok, usual.found) == (True, "refuses by max.message.bytes=78")
    bare = judgement.judge_seal(_REDPANDA, {"max.message.bytes": "1"}, sealed)
    assert bare.ok
    assert "transactions open at a seal hang" in bare.found
    assert "unproven" in bare.found


def test_an_end_that_moves_or_waits_for_nobody_is_a_failure() -> None:
    assert judgement.judge_end(APACHE, Ends(2, [2, 2]), "").ok
    assert not judgement.judge_end(APACHE, Ends(2, [2, 3]), "").ok
    assert "wait for nobody" in judgement.judge_end(APACHE, Ends(2, [2, 2]), "unsupported").found
    assert judgement.judge_end(_REDPANDA, Ends(2, [2, 2]), "").found.endswith("unproven")


def test_the_other_answers_have_a_sentence_each() -> None:
    assert "places segments itself" in judgement.judge_placement("not supported").found
    assert not judgement.judge_sequence([0], "no answer in 10 s").ok
    assert not judgement.judge_sequence([0, 2], "").ok
    assert not judgement.judge_group(None, 1).ok
    assert "controller_mutation_rate" in judgement.judge_pace(0.1, 0.1, True).found
    assert "room for about 12 more segments" in judgement.judge_room(_REDPANDA, 49_950, 4).found
    assert not judgement.judge_room(_REDPANDA, 50_000, 4).ok
    assert judgement.judge_room(APACHE, 50_000, 4).ok
