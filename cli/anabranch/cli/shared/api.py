"""A node's administration for the commands: the connection to a node, and errors as lines."""

from __future__ import annotations

from typing import IO, Any, Final

import click

from anabranch.admin import Admin, NoNodeError
from anabranch.admin import RefusedError as Refusal
from anabranch.admin.admin import NODES
from anabranch.cli.shared.access import Access, access
from anabranch.cli.shared.terminal import escaped

URL_VARIABLE: Final = "ANABRANCH_URL"

url_option = click.option(
    "--url",
    default=NODES,
    envvar=URL_VARIABLE,
    show_default=True,
    show_envvar=True,
    help="A node of the cluster; any will do. If there are several, a,b, the first that answers.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
json_lines_option = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON, one object on each line."
)


class CommandRefusedError(click.ClickException):
    """The node refused; its reason is the message."""

    exit_code = 1

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
