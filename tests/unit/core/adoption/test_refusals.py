"""Topics that must not be adopted are refused, each with its reason and a remedy."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from anabranch.core.adoption.refusals import AdoptionObstacle, refusals
from anabranch.core.adoption.survey import TopicSetting, TopicSurvey
from support.surveys import a_survey

R = AdoptionObstacle


def reasons(survey: TopicSurvey, **how: Any) -> list[AdoptionObstacle]:
    found = refusals(survey, "anabranch.", **how)
    for each in found:
        assert each.sentence.startswith(f"{survey.topic} is refused: ")
    return [each.reason for each in found]


@pytest.mark.parametrize(
    ("topic", "refused"),
    [
        ("orders", []),
        ("my_schemas", []),
        ("connected-offsets", []),
        ("internal", []),
        ("team.heartbeats", []),
        ("_private", []),
        ("changelog", []),
        ("__consumer_offsets", [R.INTERNAL]),
        ("_schemas", [R.INTERNAL]),
        ("_confluent-metrics", [R.INTERNAL]),
        ("anabranch.wal", [R.OURS]),
        ("app-store-changelog", [R.STREAMS]),
        ("app-KSTREAM-1-repartition", [R.STREAMS]),
        ("connect-offsets", [R.CONNECT]),
        ("eu.connect-configs", [R.CONNECT]),
        ("my-connect-status", [R.CONNECT]),
        ("mm2-offset-syncs.east.internal", [R.MIRROR]),
        ("east.checkpoints.internal", [R.MIRROR]),
        ("heartbeats", [R.MIRROR]),
        ("__share-changelog", [R.INTERNAL, R.STREAMS]),
    ],
)
def test_names_of_other_programs_are_refused(topic: str, refused: list[AdoptionObstacle]) -> None:
    assert reasons(a_survey(topic=topic)) == refused


def test_topics_that_kafka_calls_internal_are_refused_once() -> None:
    assert reasons(a_survey(is_internal=True)) == [R.INTERNAL]
    assert reasons(a_survey(topic="__transaction_state", is_internal=True)) == [R.INTERNAL]


@pytest.mark.parametrize(
    ("name", "value", "refused"),
    [
        ("max.message.bytes", "78", [R.SEALED]),
        ("max.message.bytes", "1", [R.SEALED]),
        ("cleanup.policy", "compact", [R.COMPACTED]),
        ("cleanup.policy", "delete,compact", [R.COMPACTED]),
        ("cleanup.policy", "delete", []),
        ("message.timestamp.type", "LogAppendTime", [R.APPEND_TIME]),
        ("message.timestamp.type", "CreateTime", []),
        ("unclean.leader.election.enable", "true", [R.UNCLEAN_ELECTION]),
        ("unclean.leader.election.enable", "false", []),
    ],
)
@pytest.mark.parametrize("is_own", [True, False])
def test_settings_count_whether_they_are_inherited_or_not(
    name: str, value: str, refused: list[AdoptionObstacle], is_own: bool
) -> None:
    assert reasons(a_survey(settings={name: TopicSetting(value, is_own)})) == refused


def test_a_segment_has_no_more_partitions_than_a_topic_may_bring() -> None:
    assert reasons(a_survey(partitions=1_024)) == []
    assert reasons(a_survey(partitions=1_025)) == [R.PARTITIONS]


def test_without_known_settings_nothing_is_adopted() -> None:
    survey = msgspec.structs.replace(a_survey(), settings={})
    assert reasons(survey) == [R.SETTINGS_UNKNOWN]


def test_without_a_prefix_of_ours_no_name_is_taken_for_ours() -> None:
    assert refusals(a_survey(), "") == ()
