"""Labels all that a run starts in Docker, and removes what a run that is gone has left behind.

`python -m faults.leftovers` (in `tests`, or `make faults-clean`) does nothing else. A run that is
killed by SIGKILL cannot remove anything itself, so the next one begins with it too.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import docker
from docker.errors import APIError, NotFound

_TEST: Final = "org.anabranch.test"
_OWNER: Final = "org.anabranch.owner"
_STACK: Final = "org.anabranch.stack"  # what `docker/compose.yaml` labels with a stack's name
_OF_A_TEST: Final = "anabranch-test-"


def labels() -> dict[str, str]:
    """What containers, networks and volumes of this process are labelled with."""
    return {_TEST: "faults", _OWNER: _owner(os.getpid())}


def stack_name() -> str:
    """What a stack of this process is called, so that it is known to be its own."""
    return _OF_A_TEST + _owner(os.getpid())


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Lets who is impatient wait until all is removed: a second Ctrl-C would leave the rest."""
    chosen = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(each, signal.SIG_IGN) for each in chosen]
    try:
        yield
    finally:
        for each, handler in zip(chosen, before, strict=True):
            signal.signal(each, handler)


def remove_leftovers() -> list[str]:
    """Removes what belongs to processes that are gone; returns what that was."""
    client: Any = docker.from_env()
    with contextlib.closing(client):
        found: list[tuple[str, Callable[[], None]]] = []
        for chosen in ({"label": f"{_TEST}=faults"}, {"label": _STACK}):
            containers = client.containers.list(all=True, filters=chosen, ignore_removed=True)
            found += [
                (f"container {each.name}", partial(each.remove, force=True, v=True))
                for each in containers
                if _is_gone(each.labels)
            ]
            found += [
                (f"network {each.name}", each.remove)
                for each in client.networks.list(filters=chosen)
                if _is_gone(each.attrs["Labels"])
            ]
            found += [
                (f"volume {each.name}", partial(each.remove, force=True))
                for each in client.volumes.list(filters=chosen)
                if _is_gone(each.attrs["Labels"])
            ]
        return [name for name, remove in found if _has_removed(remove)]


def _has_removed(remove: Callable[[], None]) -> bool:
    """Whether it was this process that has: another run may be at it."""
    try:
        remove()
    except NotFound:
        return False
    except APIError as error:
        if error.status_code == HTTPStatus.CONFLICT:
            return False
        raise
    return True


def _is_gone(found: dict[str, str]) -> bool:
    """Whether the process that has labelled it has ended; one without an owner is nobody's. A
    stack that no test has started is somebody's.
    """
    owner = found.get(_OWNER, "")
    if _STACK in found:
        if not found[_STACK].startswith(_OF_A_TEST):
            return False
        owner = found[_STACK].removeprefix(_OF_A_TEST)
    process = owner.split("-")[0]
    return not process.isdigit() or _owner(int(process)) != owner


def _owner(process: int) -> str:
    """A process by its number and its beginning, since numbers come again."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    return f"{process}-{stat.rpartition(')')[2].split()[19]}-{boot}"


def main() -> int:
    """Says what it has removed."""
    try:
        for each in remove_leftovers():
            sys.stdout.write(f"removed {each}\n")
    except APIError as error:
        sys.stderr.write(f"Docker did not remove all: {error}; run it again\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
