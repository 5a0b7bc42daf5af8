"""Topics as commands name them."""

from __future__ import annotations

from collections.abc import Sequence

import click

from anabranch.core.names import full_name, parse_scalable_topic


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


def names_of(given: str) -> list[str]:
    """The names between commas.

    >>> names_of("billing, audit,")
    ['billing', 'audit']
    """
    return [each.strip() for each in given.split(",") if each.strip()]


def count_of(number: int, what: str) -> str:
    """`1 segment`, `2 segments`."""
    return f"{number} {what}{'' if number == 1 else 's'}"
