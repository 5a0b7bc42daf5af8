"""`anabranch topics survey`: a Kafka topic before its adoption, in words."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click

from anabranch.access import kafka_tokens
from anabranch.access.kafka import read_access
from anabranch.channel.errors import KafkaUnreachableError
from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.cli.shared.access import kafka_flags
from anabranch.cli.shared.api import json_option
from anabranch.cli.shared.command import Command
from anabranch.cli.shared.exit_status import ExitStatus
from anabranch.cli.shared.output import write_json
from anabranch.cli.shared.terminal import escaped
from anabranch.cli.topics.words import count_of
from anabranch.core.adoption.refusals import AdoptionRefusal, refusals
from anabranch.core.adoption.survey import TopicSurvey
from anabranch.core.adoption.verdict import KEYS_MIN, PartitionerJudgement, PartitionerVerdict
from anabranch.core.autoscale.load import rate_in_words
from anabranch.wire.kafka.survey import survey as survey_topic

_DEADLINE_S: Final = 60.0
_REGISTERED: Final = 0.9  # of the records, so that a few others do not hide it


@click.command(cls=Command)
@click.argument("kafka_topic")
@click.option("--bootstrap-servers", required=True, metavar="HOST:PORT,...", help="Its Kafka.")
@kafka_flags
@click.option(
    "--topic-prefix", default="anabranch.", help="The beginning of the names of nodes' own topics."
)
@json_option
def survey(
    kafka_topic: str,
    bootstrap_servers: str,
    kafka_properties: Path | None,
    kafka_token_provider: str | None,
    topic_prefix: str,
    as_json: bool,
) -> int:
    """Look at KAFKA_TOPIC before its adoption; nothing in Kafka changes.

    It tells by whose partitioner the keys lie where they do, who writes and reads, settings, and
    missing rights. No key is printed. The exit status is 1 if the topic would be refused.

    Example: anabranch topics survey orders --bootstrap-servers localhost:9092
    """
    access = read_access(kafka_properties, os.environ).checked()
    given = access.with_tokens(kafka_token_provider)
    kafka = KafkaConnection(bootstrap_servers, kafka_tokens.at(given, bootstrap_servers))
    at_ms = round(1_000 * time.time())
    try:
        found = survey_topic(
            kafka_topic, kafka.bootstrap_servers, kafka.security, _DEADLINE_S, at_ms
        )
    except OSError as error:
        raise KafkaUnreachableError(
            f"Kafka at {bootstrap_servers} cannot be asked: {error}"
        ) from None
    refused = refusals(found, topic_prefix)
    if as_json:
        write_json({"survey": found, "refusals": refused})
    else:
        for line in lines_of(found, refused):
            click.echo(escaped(line))
    return ExitStatus.BAD if refused else ExitStatus.DONE


def lines_of(survey: TopicSurvey, refused: tuple[AdoptionRefusal, ...]) -> Iterator[str]:
    """Yields the survey as lines for people, the refusals first."""
    for each in refused:
        yield each.sentence
    records = sum(end - survey.starts.get(n, end) for n, end in survey.ends.items())
    yield (
        f"{survey.topic} ({survey.topic_id}): {count_of(survey.partitions, 'partition')}, "
        f"up to {count_of(records, 'record')}, {survey.records_read} of them read"
    )
    yield f"partitioner: {verdict_in_words(survey.judgement, survey.partitions)}"
    if survey.judgement.split_keys:
        yield (
            f"order: {count_of(survey.judgement.split_keys, 'key')} seen in several partitions, so "
            "their order did not hold"
        )
    yield from _writers(survey)
    yield from _readers(survey)
    yield f"codecs seen: {', '.join(survey.codecs) or 'none'}"
    for what, count in (("key", survey.registry_keys), ("value", survey.registry_values)):
        if count and count >= _REGISTERED * survey.records_read:
            yield (
                f"schemas: {what}s look like a schema registry's; producers of ours name the "
                f"subject by the scalable topic, not {survey.topic}-{what}"
            )
    yield "settings (* set on the topic, others inherited):"
    for name, setting in sorted(survey.settings.items()):
        yield f"  {'*' if setting.is_own else ' '} {name}={setting.value}"
    if survey.missing_rights:
        yield f"rights missing on the topic: {', '.join(survey.missing_rights)}"
    for part, why in survey.untold.items():
        yield f"not known: {part}: {why}"


def verdict_in_words(found: PartitionerJudgement, partitions: int) -> str:
    """Returns the verdict as a sentence.

    >>> found = PartitionerJudgement(
    ...     verdict=PartitionerVerdict.TOO_FEW,
    ...     places=10, keys=10, explained={}, split_keys=0, unkeyed=0,
    ... )
    >>> verdict_in_words(found, 12)
    'not known from 10 keys: it takes 64'
    """
    names = [each.value for each in found.partitioners]
    grown = (
        f", and among {found.earlier_partitions} partitions before"
        if found.earlier_partitions is not None
        else ""
    )
    match found.verdict:
        case PartitionerVerdict.CERTAIN:
            return f"{names[0]} explains all of {count_of(found.keys, 'key')}"
        case PartitionerVerdict.SET:
            return f"any of {', '.join(names)} explains all of {count_of(found.keys, 'key')}"
        case PartitionerVerdict.SINCE:
            return (
                f"{' or '.join(names)} explains the newest keys, since about offset "
                f"{found.since_offset}{grown}"
            )
        case PartitionerVerdict.MIXED:
            first = found.explained[found.partitioners[0]]
            second = _share(found.places - first, found.places)
            return (
                f"mixed: {names[0]} explains {_share(first, found.places)} of the keys' places, "
                f"{names[1]} the other {second}; keys that both write have no order"
            )
        case PartitionerVerdict.TOO_FEW:
            return f"not known from {count_of(found.keys, 'key')}: it takes {KEYS_MIN}"
        case PartitionerVerdict.UNKEYED:
            return f"no record has a key, of {found.unkeyed} that were read"
        case PartitionerVerdict.UNKNOWN:
            shares = sorted(found.explained.items(), key=lambda each: -each[1])[:2]
            told = " and ".join(f"{n.value} {_share(count, found.places)}" for n, count in shares)
            hint = (
                f"{names[0]} among {found.earlier_partitions} or {partitions} partitions explains "
                "all: some were added, or a mirror writes"
                if names
                else "perhaps some partitions are chosen by hand, or keys are windowed"
            )
            return f"not known: of the keys' places, {told} are explained; {hint}"


def _writers(survey: TopicSurvey) -> Iterator[str]:
    if survey.growth is not None:
        rate = rate_in_words(survey.growth.records / max(survey.growth.seconds, 1e-3))
        newest = _when("; the newest time stamp is", survey.growth.newest_ms)
        yield f"written: {rate} records/s now{newest}"
    if survey.producers is not None:
        yield (
            f"producers with numbers: {survey.producers.count}, "
            f"{survey.producers.transactional} of them with transactions"
            f"{_when('; the last batch came', survey.producers.newest_ms)}"
        )
    for partition, offset in sorted(survey.open_transactions.items()):
        yield f"open transaction: partition {partition}, from offset {offset} on"


def _readers(survey: TopicSurvey) -> Iterator[str]:
    for each in survey.groups:
        kind = f"{each.kind} " if each.kind else ""
        yield (
            f"{kind}group {each.name}: {each.state.upper()}, offsets in {len(each.offsets)} of "
            f"{count_of(survey.partitions, 'partition')}, lag {each.lag}"
        )
    if not survey.groups and "groups" not in survey.untold:
        yield "groups: none has offsets here, of those that this client may describe"


def _when(what: str, at_ms: int | None) -> str:
    if at_ms is None:
        return ""
    try:
        return f"{what} {datetime.fromtimestamp(at_ms / 1_000, UTC):%Y-%m-%d %H:%M:%S}Z"
    except (ValueError, OverflowError, OSError):  # a writer may give any number
        return f"{what} {at_ms} ms"


def _share(part: int, whole: int) -> str:
    """Returns a percentage that is 0 or 100 only if it is exact.

    >>> _share(999, 1000), _share(1, 1000), _share(5, 5)
    ('99.9 %', '0.1 %', '100 %')
    """
    percent = 100 * part / whole if whole else 0.0
    if part not in (0, whole):
        percent = min(max(percent, 0.1), 99.9)
    return f"{percent:.1f}".removesuffix(".0") + " %"
