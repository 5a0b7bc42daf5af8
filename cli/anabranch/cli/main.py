"""`anabranch`: the group of commands, and what every command has in common."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NoReturn

import click

from anabranch.cli.shared.access import access_flags, keep
from anabranch.cli.shared.command import LazyGroup
from anabranch.cli.shared.exit_status import ExitStatus
from anabranch.cli.shared.interrupts import end, interruptible, was_heard
from anabranch.core.errors import AnabranchError

# Only the module of the command that runs is imported, and by name. So the tools are no part of
# what a node or the SDK imports.
_COMMANDS: Final = {
    "dev": ("devkit.dev", "Run an embedded Kafka and some nodes on this machine."),
    "dev-role": ("devkit.dev", "Make a token and a certificate for `dev --secure`."),
    "node": ("cli.node.run", "Run one node."),
    "proxy": ("cli.node.proxy", "Run a proxy, for clients that cannot reach the nodes."),
    "demo": (
        "devkit.demo.command",
        "Show each promise once, on a small cluster and a real trace.",
    ),
    "lookup": ("cli.cluster.brokers", "Say which broker serves a topic."),
    "tenants": ("cli.cluster.tenants", "Tenants: list, show, create, update, delete."),
    "namespaces": ("cli.cluster.namespaces", "Namespaces: list, create, limit, delete ..."),
    "permissions": ("cli.cluster.tenants", "Roles' rights: list, grant, revoke."),
    "bundles": ("cli.cluster.namespaces", "A namespace's bundles: list, unload, transfer, split."),
    "brokers": ("cli.cluster.brokers", "List the brokers and their leader."),
    "acls": ("cli.cluster.acls", "Kafka's ACLs that nodes and roles need, for who makes them."),
    "isolation": ("cli.cluster.brokers", "Brokers that own some bundles alone: list, set, delete."),
    "domains": ("cli.cluster.brokers", "Brokers that fail together: list, set, delete."),
    "topics": ("cli.topics.commands", "Scalable topics: create, show, split, merge, produce ..."),
    "segments": ("cli.topics.segments", "Single segments: strays, restore."),
    "policy": ("cli.topics.policy", "Rules for topics' own splits and merges: show, set."),
    "kafka": ("cli.topics.kafka", "Kafka's client files: check."),
    "balance": ("cli.cluster.balance", "The load balancer: show, history."),
    "log": ("cli.cluster.log", "Read the log: `log tail`."),
    "archive": ("cli.spark.jobs", "Copy the log to Parquet, exactly once."),
    "audit": ("cli.spark.jobs", "Replay the whole log with Spark and check every promise."),
    "backtest": ("cli.spark.backtest", "Try auto-scale policies on loads of the past."),
    "config": ("cli.cluster.brokers", "Settings of all nodes while they run: list, set, unset."),
    "settings": ("cli.node.settings", "List a node's settings with meanings and defaults."),
    "token": ("cli.node.token", "Keys and the tokens that they sign: create, keys."),
    "doctor": ("cli.node.doctor", "Check Java, Kafka, settings, disk and port."),
}

# The extra `spark` brings these commands' packages, and `node` the others'; the SDK's need none.
_OF_SPARK: Final = frozenset({"dev", "dev-role", "demo", "archive", "audit", "backtest"})
_OF_A_NODE: Final = "structlog"  # which both extras bring

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


class _Anabranch(LazyGroup):
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

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in _OF_SPARK and importlib.util.find_spec(_OF_A_NODE) is None:
            raise ExtraMissingError(cmd_name, _OF_A_NODE)  # nodes would be started, and end
        try:
            return super().get_command(ctx, cmd_name)
        except ModuleNotFoundError as error:
            raise ExtraMissingError(cmd_name, error.name) from error


@click.group(
    cls=_Anabranch,
    modules=_COMMANDS,
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
    status: int = ExitStatus.INTERRUPTED
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
        status = ExitStatus.INTERRUPTED
    except click.ClickException as error:
        say, status = error.show, error.exit_code
    except (BrokenPipeError, SystemExit):  # click makes the second of the first
        status = ExitStatus.DONE  # `anabranch log tail | head` is no failure
    except Exception as error:  # noqa: BLE001 - what is not foreseen has its stack kept in a file
        said = describe(error)
        if said is None and was_heard():
            status = ExitStatus.INTERRUPTED
        else:
            say, status = _telling(said or keep(error)), ExitStatus.NOT_DONE
    lost = drop_unwritten()
    if lost is not None and not status and not isinstance(lost, BrokenPipeError):
        say, status = _telling(describe(lost) or str(lost)), ExitStatus.NOT_DONE
    if say is not None:
        with contextlib.suppress(OSError):  # the output may be gone
            say()
        drop_unwritten()
    return status if isinstance(status, int) else ExitStatus.DONE


def _telling(what: str) -> Callable[[], object]:
    return partial(click.echo, f"anabranch: {what}", err=True)
