"""`anabranch policy`: rules for splits and merges of one topic's segments, or a namespace's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, cast

import click
import msgspec

from anabranch.admin import Admin, AutoScaleOverride
from anabranch.cli.shared.api import connect, json_option, url_option
from anabranch.cli.shared.output import table, write_json
from anabranch.cli.shared.watching import watchable
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
_EXAMPLES = """\b
Examples:
  anabranch policy show public/default/orders
  anabranch policy set public/default/orders maxSegments=16 splitCooldown=30s
  anabranch policy set public/default enabled=false
  anabranch policy remove public/default/orders maxSegments
"""


@click.group(epilog=_EXAMPLES)
def policy() -> None:
    """Auto-scale policies: a topic's or a namespace's overrides of the nodes' settings.

    TARGET is tenant/namespace or [topic://]tenant/namespace/name. A topic's fields go before its
    namespace's, those before the settings.
    """


@policy.command(epilog="Example: anabranch policy show public/default/orders")
@click.argument("target")
@url_option
@json_option
@watchable
def show(target: str, url: str, as_json: bool) -> None:
    """Show the policy in force for a topic, field by field, or a namespace's overrides."""
    admin = connect(url)
    shown: Any
    if _is_namespace(target):
        shown = found = _overridden(admin, target)
        rows = [(field, found[field], "namespace") for field in OVERRIDE_FIELDS if field in found]
    else:
        scale = admin.scalable_topics.get_stats(_topic(target)).auto_scale
        shown = scale.policy
        rows = [(field, one.value, one.level) for field, one in scale.policy.items()]
        if scale.fault:
            click.echo(f"anabranch: not used, {scale.fault}", err=True)
    if as_json:
        write_json(shown)
    elif rows:
        table(("FIELD", "VALUE", "SET BY"), [(f, _text(value), level) for f, value, level in rows])
    else:
        click.echo(f"{target} overrides nothing")


@policy.command(name="set", epilog="Example: anabranch policy set public/default maxSegments=16")
@click.argument("target")
@click.argument("fields", nargs=-1, required=True, metavar="FIELD=VALUE...")
@url_option
def set_fields(target: str, fields: tuple[str, ...], url: str) -> None:
    """Override the fields named; other overrides of TARGET stay."""
    wanted = _fields(fields)
    admin = connect(url)
    _override(admin, target, {**_overridden(admin, target), **wanted})
    click.echo(f"{target}: " + ", ".join(f"{name}={_text(v)}" for name, v in wanted.items()))


@policy.command(epilog="Example: anabranch policy remove public/default/orders maxSegments")
@click.argument("target")
@click.argument("fields", nargs=-1, metavar="[FIELD]...")
@url_option
def remove(target: str, fields: tuple[str, ...], url: str) -> None:
    """Let the level above decide again, about the fields named or, without any, about all."""
    fields = tuple(plain_form(name, None, _FIELDS)[0] for name in fields)
    for name in fields:
        _must_be_field(name)
    admin = connect(url)
    before = _overridden(admin, target) if fields else {}  # an unreadable policy can be removed
    left = {name: value for name, value in before.items() if name not in fields}
    _override(admin, target, left)
    click.echo(f"{target} overrides " + (", ".join(left) or "nothing"))


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
    match _is_namespace(target), bool(fields):
        case True, True:
            home.set_scalable_topic_auto_scale_policy(target, wanted)
        case True, False:
            home.remove_scalable_topic_auto_scale_policy(target)
        case False, True:
            topics.set_auto_scale_policy(_topic(target), wanted)
        case _:
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
