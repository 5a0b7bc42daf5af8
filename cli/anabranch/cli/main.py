"""`anabranch`: the group of commands, and what every command has in common."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NoReturn

import click

from anabranch.cli.shared.access import access_flags, keep
from anabranch.cli.shared.interrupts import INTERRUPTED, end, interruptible, was_heard
from anabranch.core.errors import AnabranchError

# name: (module, where the command is called so, one line for the list). Only the module of the
# command run is imported, and by name: so the tools are no part of what a node or the SDK imports.
_COMMANDS: Final = {
    "dev": ("anabranch.devkit.dev", "Run an embedded Kafka and some nodes on this machine."),
    "dev-role": ("anabranch.devkit.dev", "Make a token and a certificate for `dev --secure`."),
    "node": (".node.run", "Run one node."),
    "proxy": (".node.proxy", "Run a proxy, for clients that cannot reach the nodes."),
    "demo": (
        "anabranch.devkit.demo.command",
        "Show each promise once, on a small cluster and a real trace.",
    ),
    "lookup": (".cluster.brokers", "Say which broker serves a topic."),
    "tenants": (".cluster.tenants", "Tenants: list, show, create, update, delete."),
    "namespaces": (".cluster.namespaces", "Namespaces and their bundles: create, split ..."),
    "permissions": (".cluster.tenants", "Roles' rights: list, grant, revoke."),
    "bundles": (".cluster.namespaces", "A namespace's bundles: list, unload, transfer, split."),
    "brokers": (".cluster.brokers", "List the brokers and their leader."),
    "isolation": (".cluster.brokers", "Brokers that own some bundles alone: list, set, delete."),
    "domains": (".cluster.brokers", "Brokers that fail together: list, set, delete."),
    "topics": (".topics.commands", "Scalable topics: create, show, split, merge, produce ..."),
    "segments": (".topics.segments", "Single segments: strays, restore."),
    "policy": (".topics.policy", "Rules for topics' own splits and merges: show, set."),
    "balance": (".cluster.balance", "The load balancer: show, history."),
    "log": (".cluster.log", "Read the log: `log tail`."),
    "archive": (".spark.jobs", "Copy the log to Parquet, exactly once."),
    "audit": (".spark.jobs", "Replay the whole log with Spark and check every promise."),
    "backtest": (".spark.backtest", "Try auto-scale policies on loads of the past."),
    "config": (".cluster.brokers", "Settings of all nodes while they run: list, set, unset."),
    "settings": (".node.settings", "List a node's settings with meanings and defaults."),
    "token": (".node.token", "Keys and the tokens that they sign: create, keys."),
    "doctor": (".node.doctor", "Check Java, Kafka, settings, disk and port."),
}

# The extra `spark` brings these commands' packages, and `node` the others'; the SDK's need none.
_OF_SPARK: Final = frozenset({"dev", "dev-role", "demo", "archive", "audit", "backtest"})

_EPILOG: Final = """\b
Exit status:
  0  done
  1  done, and the answer is bad: refused, or violations found
  2  could not be done: wrong usage or settings, or nothing answers
  3  `topics consume --timeout`: nothing came for so long; `audit`: no violations, but a gap
  130  ended by Ctrl-C, or a question was answered with no

\b
Environment:
  ANABRANCH_URL    the node to ask, where --url is not given
  ANABRANCH_TOKEN  the token to show nodes; others are named with the options

\b
Examples:
  anabranch dev --nodes 3 --http-port 8080 --data-dir /tmp/river
  anabranch lookup public/default/orders
  anabranch topics create public/default/orders --segments 4
  anabranch log tail --bootstrap-servers localhost:9092
"""


class ExtraMissingError(AnabranchError):
    """The extra is not installed that a command needs."""

    def __init__(self, command: str, package: str | None) -> None:
        extra = "spark" if command in _OF_SPARK else "node"
        super().__init__(
            f'`{command}` needs {package}, which is not installed: pip install "anabranch[{extra}]"'
        )


class _LazyGroup(click.Group):
    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as error:
            raise ExtraMissingError(ctx.invoked_subcommand or "", error.name) from error
        except AnabranchError as error:
            api = sys.modules.get("anabranch.cli.shared.api")  # not there, it raised nothing
            said = api.told(error) if api else error
            if said is error:
                raise
            raise said from error

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module, _ = _COMMANDS[cmd_name]
        try:
            found = importlib.import_module(module, __package__)
        except ModuleNotFoundError as error:
            raise ExtraMissingError(cmd_name, error.name) from error
        command: click.Command = getattr(found, cmd_name.replace("-", "_"))
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, about) for name, (_, about) in _COMMANDS.items()])


@click.group(
    cls=_LazyGroup,
    commands={name: click.Command(name) for name in _COMMANDS},  # which click suggests
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(
    package_name="anabranch", message="anabranch %(version)s", help="Print the version."
)
@access_flags
@click.pass_context
def cli(context: click.Context, /, **given: Any) -> None:
    """Kafka topics that split and merge under load and never break key order.

    The options say who to be to nodes, and whom to trust; they come before the command.
    """
    keep(context, given)


def main() -> NoReturn:
    """The entry point. A Ctrl-C ends it within seconds, wherever it comes."""
    status = INTERRUPTED
    with contextlib.suppress(KeyboardInterrupt), interruptible() as is_interrupted:
        try:
            status = _run()
        finally:
            if is_interrupted():
                end()
    sys.exit(status)


def _run() -> int:
    """Runs the command; errors that have a remedy are said in words, on standard error."""
    from anabranch.cli.shared.failures import describe, keep
    from anabranch.cli.shared.streams import drop_unwritten, open_closed
    from anabranch.cli.shared.terminal import tame_streams

    open_closed()
    tame_streams()
    say: Callable[[], object] | None = None
    try:
        status = cli(standalone_mode=False)
    except click.exceptions.Abort:
        status = INTERRUPTED
    except click.ClickException as error:
        say, status = error.show, error.exit_code
    except (BrokenPipeError, SystemExit):  # click makes the second of the first
        status = 0  # `anabranch log tail | head` is no failure
    except Exception as error:  # noqa: BLE001 - what is not foreseen has its stack kept in a file
        said = describe(error)
        if said is None and was_heard():
            status = INTERRUPTED
        else:
            say, status = _telling(said or keep(error)), 2
    lost = drop_unwritten()
    if lost is not None and not status and not isinstance(lost, BrokenPipeError):
        say, status = _telling(describe(lost) or str(lost)), 2
    if say is not None:
        with contextlib.suppress(OSError):  # the output may be gone
            say()
        drop_unwritten()
    return status if isinstance(status, int) else 0


def _telling(what: str) -> Callable[[], object]:
    return partial(click.echo, f"anabranch: {what}", err=True)
