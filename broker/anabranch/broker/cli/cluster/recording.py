"""`anabranch balance record`: what brokers report of their load, written to a file as it comes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, BinaryIO, Final

import click

from anabranch.broker.cli.shared.flags import setting_flags, settings_of
from anabranch.broker.cli.shared.numbers import POSITIVE
from anabranch.broker.startup import connect
from anabranch.channel.kafka.connection import KAFKA_S_MAX, KafkaConnection
from anabranch.channel.kafka.topics import Topics, check_kafka
from anabranch.channel.load.balance import (
    BrokerLoadChange,
    KafkaBrokerLoads,
    KafkaTopBundles,
    TopBundlesChange,
)
from anabranch.core.balance.recording import LoadRecorder
from anabranch.core.balance.reports import Resources
from anabranch.core.errors import InvalidInputError

_POLL_S: Final = 0.25


@click.command(
    "record",
    epilog="Example: anabranch balance record --bootstrap-servers localhost:9092 --to load.jsonl",
)
@setting_flags
@click.option(
    "--to",
    "path",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="A file that is not there yet.",
)
@click.option("--seconds", type=POSITIVE, help="How long.  [default: until Ctrl-C]")
def record(path: Path, seconds: float | None, **given: Any) -> int:
    """Record what brokers report of their load, as lines of JSON for `backtest balance`.

    It begins with the newest report of each broker. Bundles that a broker does not report are not
    recorded.
    """
    settings = settings_of(**given)
    if path.exists():
        raise InvalidInputError(f"{path} is there already: name a file that is not")
    connection, topics = connect(settings), Topics(settings.topic_prefix)
    check_kafka(connection, KAFKA_S_MAX)  # a consumer does not hear that it is not let in
    try:
        file = path.open("xb")
    except OSError as error:
        raise InvalidInputError(f"{path} cannot be written: {error.strerror}") from None
    recorder = LoadRecorder()
    ends_at = math.inf if seconds is None else time.monotonic() + seconds
    with file, suppress(KeyboardInterrupt):  # the way to end it
        follow(connection, topics, recorder, file, lambda: time.monotonic() >= ends_at)
    click.echo(
        f"{recorder.lines} lines about {len(recorder.brokers)} brokers and {recorder.bundles} "
        f"bundles are in {path}"
    )
    return 0


def follow(
    connection: KafkaConnection,
    topics: Topics,
    recorder: LoadRecorder,
    file: BinaryIO,
    is_over: Callable[[], bool],
) -> None:
    """Writes lines as reports come, until it is over."""
    with (
        closing(KafkaBrokerLoads(connection, topics)) as loads,
        closing(KafkaTopBundles(connection, topics)) as top,
    ):
        top.follows = True
        while not is_over():
            file.writelines(of_brokers(recorder, loads.poll(_POLL_S)))
            file.writelines(of_bundles(recorder, top.poll(0)))
            file.flush()


def of_brokers(recorder: LoadRecorder, changes: Iterable[BrokerLoadChange]) -> Iterator[bytes]:
    """The lines on what brokers have told of themselves."""
    for broker, told in changes:
        if told is not None:
            load = told.load
            resources = Resources(
                *(load.cpu, load.memory, load.direct_memory),
                *(load.bandwidth_in, load.bandwidth_out),
            )
            yield from recorder.measured(broker, resources, _now_ms())


def of_bundles(recorder: LoadRecorder, changes: Iterable[TopBundlesChange]) -> Iterator[bytes]:
    """The lines on what brokers have told of their bundles."""
    for broker, told in changes:
        yield from recorder.reported(broker, None if told is None else told.load, _now_ms())


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
