"""`anabranch topics subscriptions dead-letters`: the place for messages that a queue cannot
process.
"""

from __future__ import annotations

import click

from anabranch.cli.shared.api import connect, json_option, url_option
from anabranch.cli.shared.output import write_json
from anabranch.cli.shared.watching import watchable
from anabranch.cli.topics.words import full_of
from anabranch.core.entities.subscription import DELIVERIES, DELIVERIES_MAX


@click.group(
    "dead-letters",
    epilog="Example: anabranch topics subscriptions dead-letters set public/default/orders jobs",
)
def dead_letters() -> None:
    """Messages that a queue could not process.

    A queue puts them aside in a topic. Without such a topic they are lost in the end.
    """


@dead_letters.command(
    epilog="Example: anabranch topics subscriptions dead-letters show public/default/orders jobs"
)
@click.argument("topic")
@click.argument("name")
@url_option
@json_option
@watchable
def show(topic: str, name: str, url: str, as_json: bool) -> None:
    """Show where the subscription NAME of TOPIC puts its dead letters."""
    found = connect(url).scalable_topics.get_dead_letter_policy(topic, name)
    if as_json:
        write_json(found)
    elif found:
        click.echo(
            f"messages that subscription {name} of {full_of(topic)} was given "
            f"{found.max_deliveries} times in vain go to {found.dead_letter_topic}"
        )
    else:
        click.echo(f"subscription {name} of {full_of(topic)} has no dead letters")


@dead_letters.command(
    "set",
    epilog="Example: anabranch topics subscriptions dead-letters set public/default/orders jobs "
    "--deliveries 3",
)
@click.argument("topic")
@click.argument("name")
@click.option(
    "--deliveries",
    type=click.IntRange(1, DELIVERIES_MAX),
    default=DELIVERIES,
    show_default=True,
    help="Deliveries of a message before it is put aside.",
)
@click.option(
    "--to", "where", default="", help="A scalable topic, made if needed; TOPIC-NAME-DLQ if left."
)
@url_option
@click.pass_context
def set_(
    context: click.Context, topic: str, name: str, deliveries: int, where: str, url: str
) -> None:
    """Let the queue subscription NAME of TOPIC put messages aside that it could not process.

    A message goes to that topic after so many deliveries without an acknowledgement, or when a
    consumer rejects it. Its headers tell its origin and the reason.
    """
    connect(url).scalable_topics.set_dead_letter_policy(topic, name, deliveries, where)
    context.invoke(show, topic=topic, name=name, url=url, as_json=False)


@dead_letters.command(
    epilog="Example: anabranch topics subscriptions dead-letters remove public/default/orders jobs"
)
@click.argument("topic")
@click.argument("name")
@url_option
def remove(topic: str, name: str, url: str) -> None:
    """Let the subscription NAME of TOPIC put nothing aside any more; the topic stays."""
    connect(url).scalable_topics.remove_dead_letter_policy(topic, name)
    click.echo(f"subscription {name} of {full_of(topic)} has no dead letters")
