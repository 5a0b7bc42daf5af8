"""A survey in words."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.cli.topics.survey import lines_of, verdict_in_words
from anabranch.core.adoption.refusals import refusals
from anabranch.core.adoption.survey import Growth, KnownProducers, SurveyedGroup, TopicSetting
from anabranch.core.adoption.verdict import PartitionerVerdict
from anabranch.core.partitioners import Partitioner
from support.commands import run_here
from support.surveys import a_judgement, a_survey

V, P = PartitionerVerdict, Partitioner
JAVA, CRC = P.MURMUR2, P.CRC32


@pytest.mark.parametrize(
    ("known", "words"),
    [
        ({"verdict": V.CERTAIN, "partitioners": (CRC,)}, "crc32 explains all of 200 keys"),
        (
            {"verdict": V.SET, "partitioners": (JAVA, P.MURMUR2_UNSIGNED)},
            "any of murmur2, murmur2_unsigned explains all of 200 keys",
        ),
        (
            {"verdict": V.SINCE, "partitioners": (JAVA,), "since_offset": 900},
            "murmur2 explains the newest keys, since about offset 900",
        ),
        (
            {
                "verdict": V.SINCE,
                "partitioners": (JAVA,),
                "since_offset": 0,
                "earlier_partitions": 6,
            },
            "murmur2 explains the newest keys, since about offset 0, and among 6 partitions before",
        ),
        (
            {"verdict": V.MIXED, "partitioners": (JAVA, CRC), "explained": {JAVA: 188, CRC: 30}},
            (
                "mixed: murmur2 explains 94 % of the keys' places, crc32 the other 6 %; "
                "keys that both write have no order"
            ),
        ),
        ({"verdict": V.TOO_FEW, "keys": 1}, "not known from 1 key: it takes 64"),
        ({"verdict": V.UNKEYED, "unkeyed": 50}, "no record has a key, of 50 that were read"),
        (
            {"verdict": V.UNKNOWN, "explained": {JAVA: 17, CRC: 199}},
            (
                "not known: of the keys' places, crc32 99.5 % and murmur2 8.5 % are explained; "
                "perhaps some partitions are chosen by hand, or keys are windowed"
            ),
        ),
        (
            {
                "verdict": V.UNKNOWN,
                "partitioners": (JAVA,),
                "explained": {JAVA: 17},
                "earlier_partitions": 7,
            },
            (
                "not known: of the keys' places, murmur2 8.5 % are explained; murmur2 among 7 "
                "or 12 partitions explains all: some were added, or a mirror writes"
            ),
        ),
    ],
)
def test_a_verdict_is_a_sentence(known: dict[str, Any], words: str) -> None:
    assert verdict_in_words(a_judgement(**known), 12) == words


def test_each_verdict_has_words() -> None:
    for verdict in PartitionerVerdict:
        known = {"explained": {JAVA: 1}, "partitioners": (JAVA, CRC), "since_offset": 1}
        assert verdict_in_words(a_judgement(verdict=verdict, **known), 12)


def test_lines_say_who_writes_who_reads_and_what_is_not_known() -> None:
    survey = a_survey(
        starts={0: 10, 1: 0},
        ends={0: 30, 1: 5},
        judgement=a_judgement(verdict=V.CERTAIN, partitioners=(JAVA,), split_keys=1),
        records_read=25,
        codecs=("none", "zstd"),
        registry_keys=3,
        registry_values=25,
        growth=Growth(records=30, seconds=2.0, newest_ms=1_000),
        producers=KnownProducers(count=2, transactional=1, newest_ms=10**18),
        open_transactions={1: 4},
        groups=(
            SurveyedGroup(name="billing", kind="classic", state="Empty", offsets={0: 12}, lag=18),
        ),
        settings={
            "cleanup.policy": TopicSetting("compact", is_own=True),
            "retention.ms": TopicSetting("-1", is_own=False),
        },
        missing_rights=("Write", "AlterConfigs"),
        untold={"producers": "no answer"},
    )
    assert list(lines_of(survey, refusals(survey, "anabranch."))) == [
        (
            "orders is refused: it is compacted, and a newer value in another segment would "
            "replace no older one here: set cleanup.policy=delete if the newest value of each key "
            "may go"
        ),
        f"orders ({'A' * 22}): 12 partitions, up to 25 records, 25 of them read",
        "partitioner: murmur2 explains all of 200 keys",
        "order: 1 key seen in several partitions, so their order did not hold",
        "written: 15 records/s now; the newest time stamp is 1970-01-01 00:00:01Z",
        (
            "producers with numbers: 2, 1 of them with transactions; the last batch came "
            "1000000000000000000 ms"
        ),
        "open transaction: partition 1, from offset 4 on",
        "classic group billing: EMPTY, offsets in 1 of 12 partitions, lag 18",
        "codecs seen: none, zstd",
        (
            "schemas: values look like a schema registry's; producers of ours name the subject "
            "by the scalable topic, not orders-value"
        ),
        "settings (* set on the topic, others inherited):",
        "  * cleanup.policy=compact",
        "    retention.ms=-1",
        "rights missing on the topic: Write, AlterConfigs",
        "not known: producers: no answer",
    ]


def test_a_provider_of_tokens_may_be_named() -> None:
    named = ("--bootstrap-servers", "kafka:9092", "--kafka-token-provider", "gc")
    found = run_here("topics", "survey", "orders", *named)
    assert found.returncode == 2
    assert "there is no token provider 'gc'" in found.stderr
