"""`anabranch kafka`: the brokers of Kafka on which segments lie."""

from __future__ import annotations

import time
from typing import Final

import click

from anabranch.admin import Admin, KafkaBrokerStats
from anabranch.cli.shared.api import as_seen_by, connect, json_option, url_option
from anabranch.cli.shared.output import table, write_json
from anabranch.cli.shared.watching import watchable
from anabranch.core.autoscale.load import rate_in_words

_LOOK_S: Final = 2.0
_broker = click.argument("broker", type=click.IntRange(0))


@click.group(epilog="Example: anabranch kafka brokers")
def kafka() -> None:
    """Kafka's brokers: their load, and draining them.

    BROKER is Kafka's own id of one.
    """


@kafka.command(epilog="Example: anabranch kafka brokers --json")
@url_option
@json_option
@watchable
def brokers(url: str, as_json: bool) -> None:
    """List Kafka's brokers with their parts of the segments.

    Counts are of partitions: those that the broker leads, and those that it has a copy of. ACTIVE
    segments take messages; SEALED ones are only read. BYTES/S: in and out, of the partitions that
    the broker leads.
    """
    found = connect(url).kafka_brokers.list_kafka_brokers()
    if as_json:
        write_json(found)
        return
    table(
        ("BROKER", "RACK", "STATE", "ACTIVE", "COPIES", "SEALED", "COPIES", "BYTES/S"),
        [
            (
                str(each.broker_id),
                each.rack or "-",
                _state(each),
                str(each.active_leaders),
                str(each.active_replicas),
                str(each.sealed_leaders),
                str(each.sealed_replicas),
                rate_in_words(each.bytes_per_second),
            )
            for each in found
        ],
    )


def _state(broker: KafkaBrokerStats) -> str:
    words = "live" if broker.live else "gone"
    if not broker.drained:
        return words
    return f"{words}, {'draining' if broker.active_replicas else 'drained'}"


@kafka.command(epilog="Example: anabranch kafka drain 3 --watch")
@_broker
@click.option("--watch", is_flag=True, help="Wait until it takes no messages, and say how far.")
@url_option
def drain(broker: int, watch: bool, url: str) -> None:
    """Let BROKER get no more messages of ours.

    Nothing new is placed there, and each active segment with a copy there is replaced by one
    elsewhere, also if this command ends before. Sealed segments stay and are read there until their
    retention is over.
    """
    admin = connect(url)
    admin.kafka_brokers.drain_kafka_broker(broker)
    click.echo(f"broker {broker} of Kafka gets no new segments")
    if watch:
        _wait(as_seen_by(admin), broker)


@kafka.command(epilog="Example: anabranch kafka undrain 3")
@_broker
@url_option
def undrain(broker: int, url: str) -> None:
    """Let segments be placed on BROKER again.

    Nothing moves back: new segments go there, as it has most room.
    """
    connect(url).kafka_brokers.undrain_kafka_broker(broker)
    click.echo(f"broker {broker} of Kafka gets new segments again")


def _wait(admin: Admin, broker: int) -> None:
    """Tells the segments left, as often as they change, until no active one has a copy there."""
    said = ""
    while True:
        found = next(
            (b for b in admin.kafka_brokers.list_kafka_brokers() if b.broker_id == broker), None
        )
        if found is None or not found.drained:
            raise click.ClickException(f"broker {broker} of Kafka is not drained any more")
        left = f"{found.active_replicas} partitions of active segments left"
        if left != said:
            said = left
            click.echo(left)
        if not found.active_replicas:
            break
        time.sleep(_LOOK_S)
    kept = found.sealed_replicas
    click.echo(
        f"broker {broker} takes no messages; it leads {found.sealed_leaders} and has copies of "
        f"{kept} partitions of sealed segments, which go once their retention is over"
        if kept
        else f"broker {broker} has nothing of ours"
    )
