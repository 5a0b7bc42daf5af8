"""Topics as commands name them: paths of the REST interface, and words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import click

from anabranch.broker.cli.api import quoted
from anabranch.core.names import full_name, parse_scalable_topic

SCALABLE: Final = "/admin/v2/scalable"


def path_of(topic: str, *more: str | int) -> str:
    """The REST path of a topic. Raises InvalidInputError."""
    tenant, namespace, local = parse_scalable_topic(topic).split("/")
    parts = (tenant, namespace, local, *map(str, more))
    return "/".join((SCALABLE, *map(quoted, parts)))


def full_of(topic: str) -> str:
    """`topic://tenant/namespace/name`. Raises InvalidInputError."""
    return full_name(parse_scalable_topic(topic))


def properties_of(given: Sequence[str], option: str = "--property") -> dict[str, str]:
    """`k=v`, repeated. Raises BadParameter."""
    found = {}
    for one in given:
        name, sep, value = one.partition("=")
        if not sep or not name:
            raise click.BadParameter(f"{one!r} is not of the form k=v", param_hint=option)
        found[name] = value
    return found


def count_of(number: int, what: str) -> str:
    """`1 segment`, `2 segments`."""
    return f"{number} {what}{'' if number == 1 else 's'}"
