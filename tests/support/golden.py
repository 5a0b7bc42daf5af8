"""Bytes of every format that was tagged, which are read for ever.

    make release-check
    make release-check WRITE=--write

The first says whether each schema has its bytes and still holds them. The second adds those of new
schemas, when a version is tagged. A sample is made of its class, so the file needs no values.
"""

from __future__ import annotations

import json
import sys
import zlib
from collections.abc import Mapping
from enum import IntEnum
from pathlib import Path
from typing import Any, get_args, get_origin

import msgspec

from anabranch.channel.codec import STORED
from anabranch.channel.errors import UnreadableError

GOLDEN = Path(__file__).parents[1] / "data" / "golden.json"


def sample(kind: Any, name: str = "") -> Any:
    """A value of a type with something in each of its fields; `name`: the field that it is for."""
    if get_origin(kind) is tuple:
        return (sample(get_args(kind)[0], name),) * 2
    if issubclass(kind, msgspec.Struct):
        return kind(*(sample(each.type, each.name) for each in msgspec.structs.fields(kind)))
    if issubclass(kind, IntEnum):
        return list(kind)[-1]
    number = zlib.crc32(name.encode())
    return {str: f"{name} ä", int: -number, float: number / 7, bool: True}[kind]


def written() -> dict[str, str]:
    """The bytes of each newest schema's sample, in hex, by the schema's name and version."""
    samples = [(schemas, sample(each.newest)) for schemas in STORED for each in schemas.families]
    return {schemas.header(one).decode(): schemas.encode(one).hex() for schemas, one in samples}


def changed(golden: Mapping[str, str]) -> list[str]:
    """Schemas that write other bytes than they did, or whose bytes nothing reads any more."""
    today = written()
    return [
        name
        for name, value in golden.items()
        if today.get(name, value) != value or not _is_read(bytes.fromhex(value))
    ]


def _is_read(value: bytes) -> bool:
    try:
        return any(schemas.decode(value) for schemas in STORED if schemas.knows(value))
    except UnreadableError:
        return False


def main(*arguments: str) -> None:
    """Ends with a message unless all is as it was, and nothing is missing."""
    golden, today = json.loads(GOLDEN.read_text()), written()
    if lost := changed(golden):
        sys.exit(f"{', '.join(lost)}: not what was tagged; add a version and a step instead")
    if "--write" in arguments:
        GOLDEN.write_text(json.dumps(golden | today, indent=1) + "\n")
    elif missing := sorted(today.keys() - golden.keys()):
        sys.exit(f"{', '.join(missing)}: no golden bytes yet; make release-check WRITE=--write")


if __name__ == "__main__":
    main(*sys.argv[1:])
