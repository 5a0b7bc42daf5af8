"""Commands in a process of their own, while nodes answer, and log, in this one."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE
from typing import Final, NamedTuple

from support.memory_cluster import WAIT_S

# One interpreter for all of them: its start takes longer than a command.
_RUN: Final = """
import json, sys
from click.testing import CliRunner
from anabranch.broker.cli.main import cli
for words in json.loads(sys.argv[1]):
    found = CliRunner().invoke(cli, words)
    print(json.dumps([found.exit_code, found.stdout, found.stderr]))
"""


class Done(NamedTuple):
    exit_code: int
    output: str
    errors: str


async def ran(url: str, *commands: str) -> list[Done]:
    """What each command, in words with spaces between, does for the node at that address."""
    lines = [[*command.split(), "--url", url] for command in commands]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _RUN, json.dumps(lines), stdout=PIPE, stderr=PIPE
    )
    output, errors = await asyncio.wait_for(process.communicate(), WAIT_S)
    found = [Done(*json.loads(line)) for line in output.decode().splitlines()]
    assert len(found) == len(commands), errors.decode()
    return found
