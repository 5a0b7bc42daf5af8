"""The Kafka topics that must not be adopted, by their survey, each with the reason and a remedy."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum, unique
from typing import Final

import msgspec

from anabranch.core.adoption.survey import TopicSurvey
from anabranch.core.entities.segment import BUCKETS_MAX, SEALED_BYTES, SEALED_BYTES_BARE


@unique
class AdoptionObstacle(Enum):
    """Why a topic is refused."""

    INTERNAL = "internal"
    OURS = "ours"
    STREAMS = "streams"
    CONNECT = "connect"
    MIRROR = "mirror"
    COMPACTED = "compacted"
    APPEND_TIME = "append_time"
    UNCLEAN_ELECTION = "unclean_election"
    PARTITIONS = "partitions"
    SEALED = "sealed"
    SETTINGS_UNKNOWN = "settings_unknown"


class AdoptionRefusal(msgspec.Struct, frozen=True, rename="camel"):
    """A reason in words for people, with a remedy."""

    reason: AdoptionObstacle
    sentence: str


_Reasons = Iterator[tuple[AdoptionObstacle, str]]
_SEALS: Final = (str(SEALED_BYTES), str(SEALED_BYTES_BARE))
_OTHER: Final = "adopt the topic that your applications write to"
_NAMES: Final = (
    (
        AdoptionObstacle.INTERNAL,
        re.compile(r"__.*|_schemas.*|_confluent.*"),
        f"it holds the state of Kafka or a schema registry, which must stay writable: {_OTHER}",
    ),
    (
        AdoptionObstacle.STREAMS,
        re.compile(r".*-(changelog|repartition)"),
        (
            "its name is that of Kafka Streams' own topics, whose application owns the partitions: "
            f"{_OTHER}"
        ),
    ),
    (
        AdoptionObstacle.CONNECT,
        re.compile(r"(.*[._-])?connect[._-](configs|offsets|status)"),
        f"its name is that of Kafka Connect's own topics, whose workers own the settings: {_OTHER}",
    ),
    (
        AdoptionObstacle.MIRROR,
        re.compile(r".*\.internal|heartbeats"),
        f"its name is that of MirrorMaker's own topics, which it must go on writing: {_OTHER}",
    ),
)


def refusals(survey: TopicSurvey, topic_prefix: str) -> tuple[AdoptionRefusal, ...]:
    """Returns the reasons to refuse the adoption. `topic_prefix`: that of topics of ours."""
    found = (*_by_name(survey, topic_prefix), *_by_settings(survey))
    return tuple(
        AdoptionRefusal(reason, f"{survey.topic} is refused: {why}") for reason, why in found
    )


def _by_name(survey: TopicSurvey, topic_prefix: str) -> _Reasons:
    named = {reason: why for reason, name, why in _NAMES if name.fullmatch(survey.topic)}
    if survey.is_internal:
        named.setdefault(AdoptionObstacle.INTERNAL, f"Kafka calls it internal: {_OTHER}")
    yield from named.items()
    if topic_prefix and survey.topic.startswith(topic_prefix):
        yield (
            AdoptionObstacle.OURS,
            f"its name begins with {topic_prefix}, so it belongs to Anabranch already: {_OTHER}",
        )


def _by_settings(survey: TopicSurvey) -> _Reasons:
    settings = {name: each.value for name, each in survey.settings.items()}
    if not settings:
        yield (
            AdoptionObstacle.SETTINGS_UNKNOWN,
            "its settings are not known: give the right DescribeConfigs on it, and try again",
        )
    if settings.get("max.message.bytes") in _SEALS:
        yield (
            AdoptionObstacle.SEALED,
            (
                "it is sealed, from a cut-over before: set max.message.bytes, compression.type, "
                "message.timestamp.type and message.timestamp.after.max.ms as they were"
            ),
        )
    if "compact" in settings.get("cleanup.policy", ""):
        yield (
            AdoptionObstacle.COMPACTED,
            (
                "it is compacted, and a newer value in another segment would replace no older one "
                "here: set cleanup.policy=delete if the newest value of each key may go"
            ),
        )
    if settings.get("message.timestamp.type") == "LogAppendTime":
        yield (
            AdoptionObstacle.APPEND_TIME,
            (
                "its messages carry Kafka's time, and a cut-over needs their writers': set "
                "message.timestamp.type=CreateTime on it, which changes the meaning of event times"
            ),
        )
    if settings.get("unclean.leader.election.enable") == "true":
        yield (
            AdoptionObstacle.UNCLEAN_ELECTION,
            (
                "an unclean election may cut what a seal made final: set "
                "unclean.leader.election.enable=false on it"
            ),
        )
    if survey.partitions > BUCKETS_MAX:
        yield (
            AdoptionObstacle.PARTITIONS,
            (
                f"it has {survey.partitions} partitions, and a segment takes {BUCKETS_MAX}: "
                "copy it to a topic with fewer"
            ),
        )
