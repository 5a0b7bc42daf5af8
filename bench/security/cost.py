"""What security costs a node: processor time of a look-up with TLS, token and grant, against plain.

All are asked over one kept connection, one request after the other, in turn, so that only what the
node spends on each counts, and not how busy the machine is. What TLS alone costs is measured twice:
at the node, and at a server that does nothing else, which no node can be quicker than.
"""

from __future__ import annotations

import contextlib
import json
import ssl
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from anabranch.devkit import ports
from anabranch.devkit.nodes import HOST, await_ready, stop_all
from anabranch.devkit.security import DevSecurity
from bench.figure import Measured
from bench.http.asker import Asker, bearer
from bench.place import NODES, Place, resident_mb

_GOAL: Final = 0.8
_REPEATS: Final = 7
_CALLS: Final = 8_000
_PATH: Final = "/lookup/v2/topic/persistent/public/default/orders"
_GRANT: Final = "/admin/v2/namespaces/public/default/permissions/ada"
_SCHEDULED: Final = 2  # CPUCLOCK_SCHED of clock_getcpuclockid(3): not in ticks
_MEMORY_GOAL_MB: Final = 110
_SETTLED_S: Final = 5.0
PLAIN, TOKEN, TLS, BOTH, BARE, BARE_TLS = (
    *("plain", "token and grant", "TLS", "TLS, token and grant"),
    *("bare server", "bare server with TLS"),
)


class _Asked(NamedTuple):
    """The process whose time is taken, and how it is asked."""

    pid: int
    port: int
    shown: str = ""
    context: ssl.SSLContext | None = None


def secured_lookups(place: Place) -> Measured:
    """Plain over secured, in processor time of the node, of calls in turn."""
    calls = _CALLS // 8 if place.quick else _CALLS
    with _all_kinds(place) as kinds:
        took: dict[str, list[float]] = {name: [] for name in kinds}
        for repeat in range(_REPEATS + 1):
            for name, asked in kinds.items():
                spent = _spent_us(asked, calls)
                if repeat:  # the first finds the owner, and warms up
                    took[name].append(spent)
    median = {name: statistics.median(each) for name, each in took.items()}
    tls_us = median[BARE_TLS] - median[BARE]
    return Measured(
        median[BOTH],
        "us",
        median[PLAIN] / median[BOTH],
        _GOAL,
        at_least=True,
        limit=median[PLAIN],
        limit_what="the same without TLS, token and grant",
        floor=median[PLAIN] + tls_us,
        floor_what="that, and what TLS alone takes a bare server for the same bytes",
        details={
            "median_us": median,
            "of_plain_s_rate": {name: median[PLAIN] / each for name, each in median.items()},
            "us": took,
            "calls": calls,
        },
    )


def idle_memory(place: Place) -> Measured:
    """Resident memory of the nodes of a secured cluster that nothing more is asked of."""
    folder = place.folder / f"secured-{place.number()}"
    security = DevSecurity(folder)
    prefix = f"bench-secured-{place.number()}."
    place.nodes  # noqa: B018 - the plain ones, which have as long to settle
    nodes = [place.lonely_node(prefix, secured=security) for _ in range(NODES)]
    try:
        for node in nodes:
            node.start()
        await_ready(nodes)
        for node in nodes:  # a request by TLS and token, of each
            asker = Asker(node.port, security.authorization, security.context)
            asker.must("GET", "/admin/v2/tenants")
            asker.close()
        time.sleep(_SETTLED_S)
        found = [resident_mb(node.pid or 0) for node in nodes]
        plain = [resident_mb(node.pid or 0) for node in place.nodes]
    finally:
        stop_all(nodes)
    return Measured(
        max(found),
        "MB",
        max(found),
        _MEMORY_GOAL_MB,
        limit=max(plain),
        limit_what="nodes without TLS that ask nobody who they are",
        details={"nodes": found, "plain": plain},
    )


def _spent_us(asked: _Asked, calls: int) -> float:
    """Processor time of the process for a call, less what it spends in that time anyhow."""
    asker = Asker(asked.port, asked.shown, asked.context)  # one that is idle is closed in 5 s
    asker.must("GET", _PATH)
    began, before = time.perf_counter(), _processor_us(asked.pid)
    for _ in range(calls):
        asker.must("GET", _PATH)
    lasted, spent = time.perf_counter() - began, _processor_us(asked.pid) - before
    asker.close()
    before = _processor_us(asked.pid)
    time.sleep(lasted)
    return (spent - (_processor_us(asked.pid) - before)) / calls


def _processor_us(pid: int) -> float:
    """Of the process and of the kernel for it, by the clock that Linux has of each process."""
    return time.clock_gettime_ns(~pid << 3 | _SCHEDULED) / 1_000


@contextlib.contextmanager
def _all_kinds(place: Place) -> Iterator[dict[str, _Asked]]:
    """Two nodes, each a cluster of its own, that serve with TLS and without, one of which asks who
    comes; and a bare server, that answers as they do.
    """
    folder = place.folder / f"secured-{place.number()}"
    security = DevSecurity(folder)
    secret, context = security.secret_file.read_bytes(), security.context
    tls = tuple(each for each in security.settings if each.startswith("tls"))
    of_plain, of_secured = (ports.free_port(HOST) for _ in range(2))
    plain = place.lonely_node(
        f"bench-plain-{place.number()}.", *tls, f"webServicePortTls={of_plain}"
    )
    secured = place.lonely_node(
        f"bench-secured-{place.number()}.", *security.settings, f"webServicePortTls={of_secured}"
    )
    nodes = (plain, secured)
    try:
        for node in nodes:
            node.start()
        await_ready(nodes)
        Asker(secured.port, security.authorization).must(
            "POST", _GRANT, json.dumps(["view"]).encode()
        )
        ada = bearer(secret, "ada")
        answer = Asker(secured.port, ada).ask("GET", _PATH)[1]
        with _bare(folder, answer) as (pid, bare, bare_tls):
            yield {
                PLAIN: _Asked(plain.pid or 0, plain.port),
                TOKEN: _Asked(secured.pid or 0, secured.port, ada),
                TLS: _Asked(plain.pid or 0, of_plain, "", context),
                BOTH: _Asked(secured.pid or 0, of_secured, ada, context),
                BARE: _Asked(pid, bare, ada),
                BARE_TLS: _Asked(pid, bare_tls, ada, context),
            }
    finally:
        stop_all(nodes)


@contextlib.contextmanager
def _bare(folder: Path, answer: bytes) -> Iterator[tuple[int, int, int]]:
    """A bare server's process, and its ports without TLS and with."""
    file = folder / "answer"
    file.write_bytes(answer)
    plain, tls = (ports.free_port(HOST) for _ in range(2))
    files = (folder / "node.pem", folder / "node.key", file)
    command = [
        sys.executable,
        "-m",
        "bench.security.bare_answers",
        str(plain),
        str(tls),
        *map(str, files),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]) as server:
        try:
            if server.stdout is None or server.stdout.readline() != b"ready\n":
                raise RuntimeError("the bare server did not start")
            yield server.pid, plain, tls
        finally:
            server.kill()
