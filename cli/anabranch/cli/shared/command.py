"""The kind of command and of group that nearly all are. It is apart: a node needs no more."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
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


class LazyGroup(CommandGroup):
    """A group that imports the modules of some commands only when they are run.

    `modules` has by name the module below `anabranch`, and a line for the list. So commands that
    need few packages do without those of the others.
    """

    def __init__(self, *args: Any, modules: Mapping[str, tuple[str, str]], **given: Any) -> None:
        super().__init__(*args, **given)
        self._modules = modules
        for name, (_, about) in modules.items():
            self.commands[name] = click.Command(name, short_help=about)  # in its place

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._modules:
            return super().get_command(ctx, cmd_name)
        found = importlib.import_module(f"anabranch.{self._modules[cmd_name][0]}")
        command: click.Command = getattr(found, cmd_name.replace("-", "_"))
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, each.get_short_help_str(70)) for name, each in self.commands.items()]
            )
