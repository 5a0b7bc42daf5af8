"""Containers with what faults are done with, and disks: file systems in memory of a known size."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import docker

from faults.leftovers import labels

TOOLS_IMAGE: Final = "anabranch-faults:dev"
_FILL: Final = (
    "dd if=/dev/zero of={0}/filler bs=1M 2>/dev/null || true;"
    " dd if=/dev/zero of={0}/filler bs=4k oflag=append conv=notrunc 2>/dev/null || true"
)


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


class Disks:
    """Volumes by the name of their container. They stay while their containers are down, since a
    container of this class's own has them all.
    """

    def __init__(self, prefix: str, sizes_mb: dict[str, int]) -> None:
        self._prefix = prefix
        self._sizes_mb = sizes_mb
        self._made = contextlib.ExitStack()
        self._keeper: Any = None

    def create(self) -> None:
        """Call `remove`, too if this fails."""
        client: Any = docker.from_env()
        self._made.callback(client.close)
        for name, size_mb in self._sizes_mb.items():
            options = {"type": "tmpfs", "device": "tmpfs", "o": f"size={size_mb}m,mode=0777"}
            volume = client.volumes.create(self.volume(name), labels=labels(), driver_opts=options)
            self._made.callback(volume.remove, force=True)
        places = {self.volume(name): f"/disks/{name}" for name in self._sizes_mb}
        self._keeper = self._made.enter_context(tools_of(volumes=places))

    def remove(self) -> None:
        """When no container uses them any longer."""
        self._made.close()

    def volume(self, name: str) -> str:
        """Docker's name of a container's disk."""
        return f"{self._prefix}-{name}"

    def fill(self, name: str) -> None:
        """Leaves no room on a container's disk."""
        run(self._keeper, _FILL.format(f"/disks/{name}"))

    def free(self, name: str) -> None:
        """Gives the room back."""
        run(self._keeper, f"rm -f /disks/{name}/filler")
