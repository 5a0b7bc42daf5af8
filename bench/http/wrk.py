"""Requests as fast as one of three nodes answers them, and a bare server's answers in turn."""

from __future__ import annotations

import re
import shutil
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from anabranch.devkit import ports
from anabranch.devkit.nodes import HOST
from bench.place import Place

LIMIT_WHAT = "the same server with a constant answer, under the same load"
_CONNECTIONS = 32
_REPEATS = 3
_RATE = r"Requests/sec:\s+([\d.]+)"
_P99 = r"99%\s+([\d.]+)(us|ms|s)"


class Load(msgspec.Struct, frozen=True):
    """Medians over repeats, and the rate of each."""

    rate: float
    p99_ms: float
    limit: float
    rates: list[float]


def load(place: Place, paths: Sequence[str], seconds: int = 10) -> Load:
    """32 connections that ask for the paths in turn, each as soon as it is answered."""
    if shutil.which("wrk") is None:
        raise RuntimeError("wrk is missing: install it (Debian, Ubuntu: apt-get install wrk)")
    script = place.folder / f"wrk-{place.number()}.lua"
    listed = ",\n".join(f'"{path}"' for path in paths)
    script.write_text(
        f"local paths = {{{listed}}}\nlocal at = 0\n"
        "request = function() at = at % #paths + 1; return wrk.format('GET', paths[at]) end\n"
    )
    lasts = min(3, seconds) if place.quick else seconds
    rates, tails, limits = [], [], []
    for _ in range(_REPEATS):
        text = _run(place.nodes[0].url, script, lasts)
        rates.append(float(_told(_RATE, text)[1]))
        tails.append(_ms(_told(_P99, text)))
        limits.append(_bare_rate(script, lasts))
    middle = statistics.median
    return Load(middle(rates), middle(tails), middle(limits), rates)


def _run(url: str, script: Path, seconds: int) -> str:
    command = ["wrk", "-t1", f"-c{_CONNECTIONS}", f"-d{seconds}s", "--latency"]
    command += ["-s", str(script), url]
    text = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    if "Non-2xx" in text or "Socket errors" in text:
        raise RuntimeError(f"wrk met errors:\n{text}")
    return text


def _bare_rate(script: Path, seconds: int) -> float:
    port = ports.free_port(HOST)
    command = [sys.executable, "-m", "bench.http.bare", str(port)]
    folder = Path(__file__).parents[2]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=folder) as server:
        try:
            if server.stdout is None or server.stdout.readline() != b"ready\n":
                raise RuntimeError("the bare server did not start")
            return float(_told(_RATE, _run(f"http://{HOST}:{port}", script, seconds))[1])
        finally:
            server.kill()


def _told(pattern: str, text: str) -> re.Match[str]:
    found = re.search(pattern, text)
    if found is None:
        raise RuntimeError(f"wrk did not tell what was asked of it:\n{text}")
    return found


def _ms(found: re.Match[str]) -> float:
    return float(found[1]) * {"us": 0.001, "ms": 1.0, "s": 1000.0}[found[2]]
