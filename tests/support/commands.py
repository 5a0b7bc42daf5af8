"""Commands in this process, or in one of their own while nodes answer, and log, in this one."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from asyncio.subprocess import PIPE
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import click
import pytest
from click.testing import CliRunner

from anabranch.cli.main import main
from support.memory_cluster import WAIT_S
from support.there import there

# One interpreter for all of them: its start takes longer than a command.
_RUN: Final = """
import json, sys
from click.testing import CliRunner
from anabranch.cli.main import cli
from anabranch.cli.shared.failures import describe
for words in json.loads(sys.argv[1]):
    found = CliRunner().invoke(cli, words)
    failed = not isinstance(found.exception, SystemExit | None)
    said = describe(found.exception) or repr(found.exception) if failed else ""
    print(json.dumps([found.exit_code, found.stdout, found.stderr + said]))
"""


class Done(NamedTuple):
    exit_code: int
    output: str
    errors: str


async def ran(url: str, *commands: str | Sequence[str]) -> list[Done]:
    """What each command, in words or with spaces between, does for the node at that address."""
    words = [each.split() if isinstance(each, str) else each for each in commands]
    lines = [[*each, "--url", url] for each in words]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _RUN, json.dumps(lines), stdout=PIPE, stderr=PIPE
    )
    output, errors = await asyncio.wait_for(process.communicate(), WAIT_S)
    found = [Done(*json.loads(line)) for line in output.decode().splitlines()]
    assert len(found) == len(commands), errors.decode()
    return found


def every(command: click.Command, *path: str) -> Iterator[tuple[str, click.Command]]:
    """The command and all below it, each with its words."""
    yield " ".join(path), command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from every(there(command.get_command(context, name)), *path, name)


def run_here(*arguments: str) -> subprocess.CompletedProcess[str]:
    """One command in this process, which is much cheaper; it has no standard input."""
    status = 0
    with CliRunner().isolation() as (output, errors, _), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["anabranch", *arguments])
        try:
            main()
        except SystemExit as end:
            status = int(end.code or 0)
        sys.stdout.flush()
        sys.stderr.flush()
        told = [stream.getvalue().decode() for stream in (output, errors)]
    return subprocess.CompletedProcess(arguments, status, *told)
