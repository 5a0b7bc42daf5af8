"""Containers with what faults are done with, in the network of others or beside them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import docker

from faults.leftovers import labels

TOOLS_IMAGE: Final = "anabranch-faults:dev"


@contextlib.contextmanager
def tools_of(volumes: Mapping[str, str] | None = None, **more: Any) -> Iterator[Any]:
    """A container with this folder in `/faults`, gone at the end. `volumes`: more of them, each
    with its place; `more`: as docker-py has it.
    """
    client: Any = docker.from_env()
    mounts = {str(Path(__file__).parent): {"bind": "/faults", "mode": "ro"}}
    mounts |= {name: {"bind": place, "mode": "rw"} for name, place in (volumes or {}).items()}
    with contextlib.closing(client):
        found = client.containers.run(
            TOOLS_IMAGE, detach=True, labels=labels(), volumes=mounts, **more
        )
        try:
            yield found
        finally:
            found.remove(force=True, v=True)


def run(container: Any, command: str) -> str:
    """What a shell in a container says to it, but for complaints."""
    status, (said, complaints) = container.exec_run(["sh", "-ec", command], demux=True)
    if status != 0:
        told = ((said or b"") + (complaints or b"")).decode()
        raise RuntimeError(f"{command!r} failed with status {status}: {told}")
    return str((said or b"").decode())
