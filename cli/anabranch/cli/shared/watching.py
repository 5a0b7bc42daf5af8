"""`--watch`: prints a command's output again whenever it has changed."""

from __future__ import annotations

import contextlib
import functools
import io
import threading
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

import click

from anabranch.cli.shared.api import told
from anabranch.core.errors import AnabranchError

_EVERY_S: Final = 2.0
_REST: Final = 4.0  # times as long as it took to find out

_option = click.option(
    "--watch", is_flag=True, help="Say it again whenever it has changed, until Ctrl-C."
)


def watchable(tell: Callable[..., None]) -> Callable[..., None]:
    """Makes of what prints a state, and changes nothing, a command with `--watch`."""

    @functools.wraps(tell)
    def command(*, watch: bool, **given: Any) -> None:
        watched(watch, lambda: tell(**given))

    return _option(command)


def watched(
    watch: bool, tell: Callable[[], None], waits: Callable[[float], object] | None = None
) -> None:
    """Runs `tell`, which prints; with `watch` again and again. `waits`: lets time pass.

    Once it has succeeded, an error is said like anything else: nodes that are gone come back.
    """
    if not watch:
        tell()
        return
    wait = waits or threading.Event().wait
    before: tuple[str, str] | None = None
    with contextlib.suppress(KeyboardInterrupt):  # the way to end it
        while True:
            began = time.monotonic()
            now = _said(tell, must=before is None)
            if now != before:
                if before is not None:
                    click.echo(f"\n{datetime.now().astimezone():%H:%M:%S}")
                before = now
                click.echo(now[1], nl=False, err=True)
                click.echo(now[0], nl=False)
            wait(max(_EVERY_S, _REST * (time.monotonic() - began)))


def _said(tell: Callable[[], None], *, must: bool) -> tuple[str, str]:
    """Returns the output on both streams. Raises the errors of `tell` if it `must` succeed."""
    output, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        try:
            tell()
        except (AnabranchError, click.ClickException) as error:
            if must:
                raise
            said = told(error)
            what = said.message if isinstance(said, click.ClickException) else str(said)
            return "", f"anabranch: {what}\n"
    return output.getvalue(), errors.getvalue()
