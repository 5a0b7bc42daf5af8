"""`anabranch kafka`: what becomes of a Kafka client's file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import click
import msgspec

from anabranch.access.kafka import KafkaAccess, read_access
from anabranch.cli.shared.access import KAFKA_PROPERTIES_VARIABLE
from anabranch.cli.shared.api import json_option
from anabranch.cli.shared.command import CommandGroup
from anabranch.cli.shared.exit_status import ExitStatus
from anabranch.cli.shared.output import table, write_json

# Words of a protocol, which tell more than they hide; all other values stay hidden.
_SHOWN: Final = (
    "security.protocol",
    "sasl.mechanism",
    "sasl.oauthbearer.method",
    "ssl.endpoint.identification.algorithm",
)
_HIDDEN: Final = "(hidden)"


@click.group(cls=CommandGroup)
def kafka() -> None:
    """Look at what Kafka's clients are given.

    Example: anabranch kafka check client.properties
    """


@kafka.command()
@click.argument(
    "file", type=click.Path(path_type=Path), required=False, envvar=KAFKA_PROPERTIES_VARIABLE
)
@json_option
def check(file: Path | None, as_json: bool) -> int:
    """Say what becomes of each name in FILE, a Kafka client's file or a folder of a Secret.

    Each name is taken, ignored or refused, as it is for `kafka=` of the SDK, --kafka-properties and
    kafkaPropertiesFile. Variables ANABRANCH_KAFKA_<NAME> go before FILE. Without FILE, the one in
    ANABRANCH_KAFKA_PROPERTIES_FILE counts. Secrets are not shown, and Kafka is not asked.

    Exit status 1: something is refused.

    Example: anabranch kafka check client.properties
    """
    access = read_access(file, os.environ)
    if access.token_wanting:
        access = msgspec.structs.replace(access, refused=(*access.refused, access.token_wanting))
    if as_json:
        write_json(_document(access))
    else:
        _print(access)
    return ExitStatus.BAD if access.refused else ExitStatus.DONE


def _document(access: KafkaAccess) -> dict[str, object]:
    return {
        "taken": {each.name: list(each.into) for each in access.taken},
        "ignored": access.ignored,
        "refused": access.refused,
        "notes": access.notes,
        "properties": {name: _told(access, name) for name in sorted(access.properties)},
        "bootstrapServers": access.bootstrap_servers,
        "tokenProvider": _provider(access),
    }


def _print(access: KafkaAccess) -> None:
    rows = [("taken", each.name, ", ".join(each.into) or "-") for each in access.taken]
    rows += [("ignored", name, "-") for name in access.ignored]
    if rows:
        table(("OUTCOME", "NAME", "BECOMES"), rows)
    told = [(name, _told(access, name)) for name in sorted(access.properties)]
    if access.bootstrap_servers:
        told.append(("bootstrap.servers", f"{access.bootstrap_servers} (for a node alone)"))
    if access.token_provider:
        told.append(("token provider", _provider(access) or ""))
    if told:
        click.echo()
        table(("PROPERTY", "VALUE"), told)
    for kind, said in (("note", access.notes), ("refused", access.refused)):
        for each in said:
            click.echo(f"{kind}: {each}")
    if not (rows or access.refused):
        click.echo("nothing is given: name a file, or set variables ANABRANCH_KAFKA_<NAME>")


def _told(access: KafkaAccess, name: str) -> str:
    value = access.properties[name]
    if name.endswith(".pem") and "PRIVATE" not in value:
        return f"{value.count('BEGIN CERTIFICATE')} certificates"
    return value if name in _SHOWN else _HIDDEN


def _provider(access: KafkaAccess) -> str | None:
    provider = access.token_provider
    return provider and provider.partition(":")[0]  # a file's path stays hidden
