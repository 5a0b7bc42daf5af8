"""Labels all that a run starts in Docker, and removes what an earlier run has left behind.

`python -m faults.leftovers` (in `tests`, or `make faults-clean`) does nothing else. A run that is
killed by SIGKILL cannot remove anything itself, so the next one begins with it too. So one engine
bears one run at a time.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import docker
from docker.errors import APIError, NotFound

_TEST: Final = "org.anabranch.test"
_STACK: Final = "org.anabranch.stack"  # what `docker/compose.yaml` labels with a stack's name
_OF_A_TEST: Final = "anabranch-test-"


def labels() -> dict[str, str]:
    """What containers, networks and volumes of a run are labelled with."""
    return {_TEST: "faults"}


def stack_name() -> str:
    """What a stack of this process is called, so that it is known to be a test's."""
    return f"{_OF_A_TEST}{os.getpid()}"


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
    """Removes what runs have left; returns what that was."""
    client: Any = docker.from_env()
    with contextlib.closing(client):
        found: list[tuple[str, Callable[[], None]]] = []
        for label in (f"{_TEST}=faults", _STACK):
            chosen = {"label": label}
            containers = client.containers.list(all=True, filters=chosen, ignore_removed=True)
            found += [
                (f"container {each.name}", partial(each.remove, force=True, v=True))
                for each in containers
                if _is_of_a_test(each.labels)
            ]
            found += [
                (f"network {each.name}", each.remove)
                for each in client.networks.list(filters=chosen)
                if _is_of_a_test(each.attrs["Labels"])
            ]
            found += [
                (f"volume {each.name}", partial(each.remove, force=True))
                for each in client.volumes.list(filters=chosen)
                if _is_of_a_test(each.attrs["Labels"])
            ]
        for _, remove in found:
            with contextlib.suppress(NotFound):
                remove()
    return [name for name, _ in found]


def _is_of_a_test(found: dict[str, str]) -> bool:
    """A stack that no test has started is somebody's."""
    return _TEST in found or found.get(_STACK, "").startswith(_OF_A_TEST)


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
