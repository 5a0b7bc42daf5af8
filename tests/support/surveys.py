"""Surveys of topics that are not there."""

from __future__ import annotations

from typing import Any

from anabranch.core.adoption.survey import TopicSetting, TopicSurvey
from anabranch.core.adoption.verdict import PartitionerJudgement, judge


def a_judgement(**known: Any) -> PartitionerJudgement:
    return judge([], 12) if not known else PartitionerJudgement(**{**_JUDGED, **known})


_JUDGED: dict[str, Any] = {
    "places": 200,
    "keys": 200,
    "explained": {},
    "split_keys": 0,
    "unkeyed": 0,
}


def a_survey(**known: Any) -> TopicSurvey:
    """A survey in which nothing is wrong, but for what is given."""
    found: dict[str, Any] = {
        "topic": "orders",
        "topic_id": "A" * 22,
        "is_internal": False,
        "at_ms": 1,
        "partitions": 12,
        "starts": {},
        "ends": {},
        "judgement": a_judgement(),
        "records_read": 0,
        "codecs": (),
        "registry_keys": 0,
        "registry_values": 0,
        "growth": None,
        "producers": None,
        "open_transactions": {},
        "groups": (),
        "settings": {"cleanup.policy": TopicSetting("delete", is_own=False)},
        "missing_rights": (),
        "untold": {},
    }
    return TopicSurvey(**{**found, **known})
