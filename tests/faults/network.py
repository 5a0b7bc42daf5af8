"""How faults of the network are done: from a container that shares the target's network.

All is iptables' choice of packets by the peers' addresses, so that one link can suffer and the
others not: it drops them (all, or some by chance), or puts them into a queue from which `delay.py`
lets them go later. (The kernel's netem is missing from too many kernels.)
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any, Final

from docker.errors import APIError

from faults.delay import QUEUE
from faults.schedule import Fault, Kind
from faults.stack import Stack
from faults.tools import run, tools_of

AGAIN_S: Final = 60.0
HEAL: Final = "iptables -w -F"


def commands(kind: Kind, strength: float, addresses: tuple[str, ...]) -> list[str]:
    """What a shell in the target's network does so that it suffers.

    >>> commands(Kind.ONE_WAY, 1, ("10.0.0.2",))
    ['iptables -w -A INPUT -s 10.0.0.2 -j DROP']
    """
    received = [f"iptables -w -A INPUT -s {address}" for address in addresses]
    both = received + [f"iptables -w -A OUTPUT -d {address}" for address in addresses]
    match kind:
        case Kind.ONE_WAY:
            return [f"{rule} -j DROP" for rule in received]
        case Kind.CUT:
            return [f"{rule} -j DROP" for rule in both]
        case Kind.LOSSY:
            some = f"-m statistic --mode random --probability {strength:.3f}"
            return [f"{rule} {some} -j DROP" for rule in both]
        case Kind.JITTERY:
            return [f"{rule} -j NFQUEUE --queue-num {QUEUE} --queue-bypass" for rule in both]
        case Kind.METADATA_SLOW:
            sent = [f"iptables -w -A OUTPUT -p tcp --sport 9092 -d {each}" for each in addresses]
            return [f"{rule} -j NFQUEUE --queue-num {QUEUE} --queue-bypass" for rule in sent]
        case _:
            raise ValueError(f"{kind} is no fault of links")


@contextlib.contextmanager
def disturbed(stack: Stack, fault: Fault) -> Iterator[None]:
    """Lets the links between the target and the peers suffer."""
    addresses = tuple(stack.addresses[peer] for peer in fault.peers)
    deadline = time.monotonic() + AGAIN_S
    with contextlib.ExitStack() as beside:
        while True:
            target = stack.container(fault.targets[0]).id
            try:
                tools = beside.enter_context(
                    tools_of(network_mode=f"container:{target}", cap_add=["NET_ADMIN"])
                )
                beside.callback(run, tools, HEAL)
                if fault.kind in (Kind.JITTERY, Kind.METADATA_SLOW):
                    held_back(tools, fault.strength)
                run(tools, "; ".join(commands(fault.kind, fault.strength, addresses)))
                break
            except (APIError, RuntimeError):
                # A target that has just ended by itself is started again, in another network.
                if time.monotonic() > deadline:
                    raise
                beside.close()
                time.sleep(1.0)
        yield


def held_back(tools: Any, longest_ms: float) -> None:
    """Has `delay.py` take what is put into its queue, for as long as the container is there."""
    _, said = tools.exec_run(["python3", "/faults/delay.py", f"{longest_ms:.0f}"], stream=True)
    if next(said, b"").strip() != b"holding":
        raise RuntimeError(f"delay.py did not begin: {b''.join(said).decode()}")
