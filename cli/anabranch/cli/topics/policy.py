"""`anabranch policy`: rules for splits and merges of one topic's segments, or a namespace's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, cast

import click
import msgspec

from anabranch.admin import Admin, AutoScaleOverride, PolicyField
from anabranch.cli.shared.api import answers, changes
from anabranch.cli.shared.command import CommandGroup
from anabranch.cli.shared.output import table
from anabranch.core.autoscale.policy import OVERRIDE_FIELDS, AutoScalePolicy, setting_name
from anabranch.core.errors import InvalidInputError
from anabranch.core.names import parse_scalable_topic
from anabranch.core.quantities import plain_form

# Shown with a policy's fields, and the same on every node.
NODE_SETTINGS: Final = {
    field.encode_name: setting_name(field.name)
    for field in msgspec.structs.fields(AutoScalePolicy)
    if field.encode_name not in OVERRIDE_FIELDS
}
_FIELDS: Final = frozenset(OVERRIDE_FIELDS)
_target = click.argument("target")
_EXAMPLES = """\b
Examples:
  anabranch policy show public/default/orders
  anabranch policy set public/default/orders maxSegments=16 splitCooldown=30s
  anabranch policy set public/default enabled=false
  anabranch policy remove public/default/orders maxSegments
"""


@click.group(cls=CommandGroup, epilog=_EXAMPLES)
def policy() -> None:
    """Auto-scale policies: a topic's or a namespace's overrides of the nodes' settings.

    TARGET is tenant/namespace or [topic://]tenant/namespace/name. A topic's fields go before its
    namespace's, those before the settings.
    """


def _rows(found: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [
        (field, _text(one.value), one.level)
        if isinstance(one, PolicyField)
        else (field, _text(one), "namespace")
        for field, one in found.items()
    ]


def _tell(found: dict[str, Any], target: str) -> None:
    if found:
        table(("FIELD", "VALUE", "SET BY"), _rows(found))
    else:
        click.echo(f"{target} overrides nothing")


@policy.command()
@_target
@answers(_tell, "target")
def show(admin: Admin, target: str) -> dict[str, Any]:
    """Show the policy in force for a topic, field by field, or a namespace's overrides.

    Example: anabranch policy show public/default/orders
    """
    if _is_namespace(target):
        found = _overridden(admin, target)
        return {field: found[field] for field in OVERRIDE_FIELDS if field in found}
    scale = admin.scalable_topics.get_stats(_topic(target)).auto_scale
    if scale.fault:
        click.echo(f"anabranch: not used, {scale.fault}", err=True)
    return dict(scale.policy)


@policy.command("set")
@_target
@click.argument("fields", nargs=-1, required=True, metavar="FIELD=VALUE...")
@changes
def set_fields(admin: Admin, target: str, fields: Sequence[str]) -> str:
    """Override the fields named; other overrides of TARGET stay.

    Example: anabranch policy set public/default maxSegments=16
    """
    wanted = _fields(fields)
    _override(admin, target, {**_overridden(admin, target), **wanted})
    return f"{target}: " + ", ".join(f"{name}={_text(v)}" for name, v in wanted.items())


@policy.command()
@_target
@click.argument("fields", nargs=-1, metavar="[FIELD]...")
@changes
def remove(admin: Admin, target: str, fields: Sequence[str]) -> str:
    """Let the level above decide again, about the fields named or, without any, about all.

    Example: anabranch policy remove public/default/orders maxSegments
    """
    fields = tuple(plain_form(name, None, _FIELDS)[0] for name in fields)
    for name in fields:
        _must_be_field(name)
    before = _overridden(admin, target) if fields else {}  # an unreadable policy can be removed
    left = {name: value for name, value in before.items() if name not in fields}
    _override(admin, target, left)
    return f"{target} overrides " + (", ".join(left) or "nothing")


def _is_namespace(target: str) -> bool:
    return "://" not in target and target.count("/") == 1


def _topic(target: str) -> str:
    """Raises InvalidInputError."""
    try:
        return parse_scalable_topic(target)
    except InvalidInputError as error:
        raise InvalidInputError(f"{error}; or name a namespace: tenant/namespace") from None


def _overridden(admin: Admin, target: str) -> dict[str, Any]:
    """Returns the target's overrides, by field."""
    if _is_namespace(target):
        return dict(admin.namespaces.get_scalable_topic_auto_scale_policy(target))
    return dict(admin.scalable_topics.get_auto_scale_policy(_topic(target)))


def _override(admin: Admin, target: str, fields: dict[str, Any]) -> None:
    """Replaces the target's overrides; without any field it overrides nothing."""
    wanted = cast(AutoScaleOverride, fields)
    home, topics = admin.namespaces, admin.scalable_topics
    if _is_namespace(target) and fields:
        home.set_scalable_topic_auto_scale_policy(target, wanted)
    elif _is_namespace(target):
        home.remove_scalable_topic_auto_scale_policy(target)
    elif fields:
        topics.set_auto_scale_policy(_topic(target), wanted)
    else:
        topics.remove_auto_scale_policy(_topic(target))


def _fields(given: Sequence[str]) -> dict[str, Any]:
    """`name=value`, repeated. Raises BadParameter."""
    found: dict[str, Any] = {}
    for one in given:
        written, sep, text = one.partition("=")
        if not sep:
            raise click.BadParameter(f"{one!r} is not of the form FIELD=VALUE")
        try:
            name, value = plain_form(written, text, _FIELDS)
        except InvalidInputError as error:
            raise click.BadParameter(f"{written}: {error}") from None
        _must_be_field(name)
        found[name] = _value(name, value) if isinstance(value, str) else value
    return found


def _must_be_field(name: str) -> None:
    if name in NODE_SETTINGS:
        raise click.BadParameter(
            f"{name!r} is no field that a topic or a namespace overrides, but a setting of the "
            f"nodes: {NODE_SETTINGS[name]}"
        )
    if name not in OVERRIDE_FIELDS:
        raise click.BadParameter(
            f"{name!r} is no field of a policy; there are {', '.join(OVERRIDE_FIELDS)}"
        )


def _value(name: str, text: str) -> bool | float:
    """Returns the text's value; the node checks that it is of the field's kind."""
    if text in ("true", "false"):
        return text == "true"
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if math.isfinite(number):
        return number
    raise click.BadParameter(f"{name}: {text!r} is neither a number nor true or false")


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:.15g}" if isinstance(value, int | float) else str(value)
