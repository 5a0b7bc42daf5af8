"""Commands that ask a node: declared by what is asked, and by what it is told as.

`answers` and `changes` make a command of a function that takes the node's administration. They
have the flags, the connection, JSON and errors as lines.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import IO, Any, Final

import click

from anabranch.admin import Admin, NoNodeError
from anabranch.admin import RefusedError as Refusal
from anabranch.admin.admin import NODES
from anabranch.cli.shared.access import Access, access
from anabranch.cli.shared.exit_status import ExitStatus
from anabranch.cli.shared.output import table, write_json
from anabranch.cli.shared.terminal import escaped

URL_VARIABLE: Final = "ANABRANCH_URL"

url_option = click.option(
    "--url",
    default=NODES,
    envvar=URL_VARIABLE,
    show_envvar=True,
    help="A node of the cluster; any will do. If there are several, a,b, the first that answers.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
json_lines_option = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON, one object on each line."
)

Ask = Callable[..., Any]  # takes the administration of the node, and the command's arguments


def answers(tell: Callable[..., object], *names: str) -> Callable[[Ask], Callable[..., None]]:
    """Makes of what asks a node a command with `--url` and `--json`.

    It prints the answer as JSON, or has `tell` print it for people, which also takes the command's
    arguments of these `names`.
    """

    def made(ask: Ask) -> Callable[..., None]:
        @url_option
        @json_option
        @functools.wraps(ask)
        def command(url: str, as_json: bool, **given: Any) -> None:
            found = ask(connect(url), **given)
            if as_json:
                write_json(found)
            else:
                tell(found, *(given[name] for name in names))

        return command

    return made


def changes(act: Callable[..., str]) -> Callable[..., None]:
    """Makes of what changes something by a node a command with `--url`. It prints the result."""

    @url_option
    @functools.wraps(act)
    def command(url: str, **given: Any) -> None:
        click.echo(act(connect(url), **given))

    return command


def rows(head: Sequence[str], row: Callable[[Any], Sequence[str]]) -> Callable[[Any], None]:
    """Returns what tells a list as a table, and a mapping as one of its pairs."""

    def tell(found: Any) -> None:
        listed = found.items() if isinstance(found, dict) else found
        table(head, [row(each) for each in listed])

    return tell


def lines(found: Iterable[str]) -> None:
    """Tells each on a line of its own."""
    click.echo("".join(f"{escaped(each)}\n" for each in found), nl=False)


class CommandRefusedError(click.ClickException):
    """The node refused; its reason is the message."""

    exit_code = ExitStatus.BAD

    def show(self, file: IO[Any] | None = None) -> None:
        """Prints as `main` prints other errors, because the usage is not wrong."""
        click.echo(f"anabranch: {self.format_message()}", file=file, err=file is None)


def connect(url: str, given: Access | None = None) -> Admin:
    """Returns the node's administration, and asks nothing yet. Raises InvalidInputError.

    `given`: the access flags, on a thread that is not the command's. Without it the administration
    is closed with the command.
    """
    who = given or access()
    admin = Admin(url, tls=who.tls(), credentials=who.credentials(), on_stale=_tell_stale)
    context = None if given else click.get_current_context(silent=True)
    return admin if context is None else context.with_resource(admin)


def as_seen_by(admin: Admin) -> Admin:
    """The node that answered last: others may not have read so far."""
    return connect(admin.answered_by)


def refused(refusal: Refusal, hint: str = "") -> CommandRefusedError:
    """A refusal as a line, with a hint for people."""
    return CommandRefusedError(
        f"{refusal.status}: {escaped(refusal.reason)}" + (f"; {hint}" if hint else "")
    )


def told(error: Exception) -> Exception:
    """The error as the command line tells it: with what to do here."""
    if isinstance(error, Refusal):
        return refused(error)
    if isinstance(error, NoNodeError):
        return NoNodeError(
            f"{error}; start one with `anabranch dev`, or name another with --url or {URL_VARIABLE}"
        )
    return error


def _tell_stale() -> None:
    click.echo("anabranch: the node cannot reach the log; its answer may be out of date", err=True)
