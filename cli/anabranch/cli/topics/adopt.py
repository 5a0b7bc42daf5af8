"""`anabranch topics adopt`, `release`: a Kafka topic becomes a scalable topic where it lies."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import click

from anabranch.admin import Admin, AdoptionSurvey, FromGroup
from anabranch.admin import RefusedError as Refusal
from anabranch.cli.shared.api import as_seen_by, changes, connect, json_option, lines, url_option
from anabranch.cli.shared.command import Command
from anabranch.cli.shared.exit_status import ExitStatus
from anabranch.cli.shared.output import write_json
from anabranch.cli.topics.survey import lines_of
from anabranch.cli.topics.words import count_of, full_of, names_of
from anabranch.core.adoption.survey import SurveyedGroup
from anabranch.core.errors import InvalidInputError
from anabranch.core.names import subscription as subscription_name
from anabranch.core.partitioners import Partitioner

_ALL = "all"


@click.command(cls=Command)
@click.argument("kafka_topic")
@click.option("--as", "topic", required=True, metavar="TOPIC", help="The new scalable topic.")
@click.option(
    "--partitioner",
    type=click.Choice(("auto", "none", *(each.value for each in Partitioner))),
    default="auto",
    help="How its writers find a key's partition. auto: as the survey finds; none: producers of "
    "TOPIC write after the cut-over only.",
)
@click.option(
    "--groups",
    metavar="GROUP,...|all",
    help="Make a subscription of each group that has no members, where it has come to.",
)
@click.option("--dry-run", is_flag=True, help="Print the survey, and change nothing.")
@url_option
@json_option
def adopt(
    kafka_topic: str,
    topic: str,
    partitioner: str,
    groups: str | None,
    dry_run: bool,
    url: str,
    as_json: bool,
) -> int:
    """Let KAFKA_TOPIC become a scalable topic where it lies.

    It is surveyed first. Its writers and readers notice nothing, and nothing of it is changed,
    until `topics prepare` cuts it over. `topics release` undoes an adoption before that. The exit
    status is 1 if it is refused.

    Example: anabranch topics adopt orders --as topic://acme/shop/orders --dry-run
    """
    admin = connect(url)
    look = partial(admin.scalable_topics.survey_kafka_topic, topic, kafka_topic)
    if dry_run:
        found = look()
        if as_json:
            write_json(found)
        else:
            lines(lines_of(found.survey, found.refusals))
        return ExitStatus.BAD if found.refusals else ExitStatus.DONE
    wanted = _wanted(groups, look()) if groups else []  # the adoption surveys by itself
    admin.scalable_topics.adopt_kafka_topic(topic, kafka_topic, partitioner)
    said = list(_take_over(as_seen_by(admin), topic, wanted))
    if as_json:
        write_json({"topic": full_of(topic), "kafkaTopic": kafka_topic, "said": said})
        return ExitStatus.DONE
    lines([f"{full_of(topic)} is Kafka topic {kafka_topic}", *said])
    return ExitStatus.DONE


def _wanted(groups: str, found: AdoptionSurvey) -> list[SurveyedGroup]:
    """Raises UsageError for a group that has no offsets in the topic."""
    known = {each.name: each for each in found.survey.groups}
    if groups == _ALL:
        return list(known.values())
    names = names_of(groups)
    missing = [each for each in names if each not in known]
    if missing:
        raise click.UsageError(
            f"group {missing[0]} has no offsets in {found.survey.topic}: those that have are "
            f"{', '.join(known) or 'none'}"
        )
    return [known[each] for each in names]


def _take_over(admin: Admin, topic: str, groups: Iterable[SurveyedGroup]) -> Iterable[str]:
    """Makes subscriptions of the groups; says of each what became of it."""
    for each in groups:
        by_hand = (
            f"anabranch topics subscriptions create {full_of(topic)} NAME --from-group {each.name}"
        )
        if each.has_members:
            yield f"group {each.name} has members: stop them, then {by_hand}"
            continue
        try:
            subscription_name(each.name)
            admin.scalable_topics.create_subscription(topic, each.name, start=FromGroup(each.name))
        except (InvalidInputError, Refusal) as error:
            yield f"group {each.name} was not taken over: {error}; {by_hand}"
        else:
            yield f"subscription {each.name} begins where group {each.name} has come to"


@click.command(cls=Command)
@click.argument("topic")
@click.option(
    "--give-back",
    is_flag=True,
    help="After a cut-over: open its Kafka topic again, in place of all segments, and keep TOPIC.",
)
@click.option(
    "--leave-middle",
    is_flag=True,
    help="With --give-back: also if messages lie in segments, where plain readers do not see them.",
)
@changes
def release(admin: Admin, topic: str, give_back: bool, leave_middle: bool) -> str:
    """Forget TOPIC, an adopted Kafka topic that was not cut over. The Kafka topic stays as it is.

    After a cut-over, --give-back comes first. Plain producers may write again from then on, and the
    SDK's clients follow.

    Example: anabranch topics release topic://acme/shop/orders --give-back --leave-middle
    """
    if leave_middle and not give_back:
        raise click.UsageError("--leave-middle goes with --give-back")
    if not give_back:
        admin.scalable_topics.release_kafka_topic(topic)
        return f"{full_of(topic)} is forgotten; its Kafka topic stays as it is"
    found = admin.scalable_topics.give_back_kafka_topic(topic, leave_middle=leave_middle)
    left = f"; {count_of(found.left, 'message')} stay in segments" if found.left else ""
    return f"{full_of(topic)} is Kafka topic {found.kafka_topic} again, from its old ends on{left}"
