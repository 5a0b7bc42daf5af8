"""The kind of command and of group that nearly all are. It is apart: a node needs no more."""

from __future__ import annotations

import inspect
from typing import Any

import click


class Command(click.Command):
    """A command whose docstring ends with its example, and whose help tells the defaults."""

    def __init__(self, *args: Any, **given: Any) -> None:
        given["context_settings"] = {"show_default": True, **(given.get("context_settings") or {})}
        told, is_there, example = inspect.cleandoc(given.get("help") or "").rpartition(
            "\n\nExample: "
        )
        if is_there:
            given |= {"help": told, "epilog": f"Example: {' '.join(example.split())}"}
        super().__init__(*args, **given)


class CommandGroup(Command, click.Group):
    """A group of such commands."""

    command_class = Command
    group_class = type
