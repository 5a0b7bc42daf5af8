"""Audits again and again, and serves the newest verdict: the service `audits` of compose.yaml.

    audits.py --every SECONDS --port PORT --folder FOLDER -- anabranch audit ...

`/metrics` has the verdict for Prometheus, `/` the page of the newest audit and `/audit.json` its
JSON. Each audit is a process of its own, so that one that hangs or dies takes nothing with it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import FrameType
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

_COULD_NOT_RUN: Final = 2
_VERDICTS: Final = frozenset({0, 1, 3})  # of these there is a report
_SOONER_S: Final = 30.0  # to the next try after one that could not run: Kafka may be starting
_TOLD_OF_CHECKS: Final = {
    "violated": ("anabranch_audit_violations", "Violations that the newest audit found."),
    "examined": ("anabranch_audit_examined", "How much a check of the newest audit looked at."),
}


@dataclass(frozen=True, slots=True)
class Audited:
    """How the newest audit ended. `report`: its JSON, none if it could not run, which is also said
    of one that was killed or failed by itself, whatever its process ended with: `ended`.
    """

    ended: int
    status: int
    seconds: float
    finished_at: float
    report: dict[str, Any] | None


class Verdicts(Collector):
    """The newest audit as metrics; before the first one there are none of it."""

    def __init__(self) -> None:
        self.newest: Audited | None = None

    def collect(self) -> Iterator[Metric]:
        found = self.newest
        yield _gauge(
            "anabranch_audit_exit_status",
            "0 sound, 1 violations, 2 could not run, 3 a gap: how the newest audit ended.",
            None if found is None else found.status,
        )
        yield _gauge(
            "anabranch_audit_seconds",
            "How long the newest audit took.",
            None if found is None else found.seconds,
        )
        yield _gauge(
            "anabranch_audit_finished_timestamp_seconds",
            "When the newest audit ended, in seconds since 1970.",
            None if found is None else found.finished_at,
        )
        report = found.report if found is not None else None
        yield _gauge(
            "anabranch_audit_records",
            "Log records that the newest audit replayed.",
            None if report is None else report["records"],
        )
        yield _gauge(
            "anabranch_audit_next_offset",
            "The first log offset that the newest audit did not look at.",
            None if report is None else report["log"]["next_offset"],
        )
        for field, (name, text) in _TOLD_OF_CHECKS.items():
            family = GaugeMetricFamily(name, text, None, ["check"])
            for check in () if report is None else report["checks"]:
                family.add_metric([check["name"]], check[field])
            yield family


def _say(what: str) -> None:
    sys.stderr.write(f"audits: {what}\n")
    sys.stderr.flush()


def _gauge(name: str, text: str, value: float | None) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text)
    if value is not None:
        family.add_metric([], value)
    return family


class Service:
    """One audit after the other, until it is told to stop."""

    def __init__(self, every_s: float, folder: Path, command: list[str]) -> None:
        self.registry = CollectorRegistry()
        self.verdicts = Verdicts()
        self.registry.register(self.verdicts)
        Gauge(
            "anabranch_audit_interval_seconds",
            "Time from one audit's end to the next one's start.",
            registry=self.registry,
        ).set(every_s)
        self._ended = Counter(
            "anabranch_audits",
            "Audits that ended, by exit status.",
            ["status"],
            registry=self.registry,
        )
        self._every_s = every_s
        self._folder = folder
        self._command = command
        self._stopping = threading.Event()
        self._running: subprocess.Popen[bytes] | None = None

    def run(self) -> None:
        """Audits until `stop`."""
        while not self._stopping.is_set():
            found = self._audit()
            if self._stopping.is_set():
                return
            self.verdicts.newest = found
            self._ended.labels(str(found.status)).inc()
            what = "" if found.ended == found.status else ", and could not run"
            _say(f"an audit ended with status {found.ended} after {found.seconds:.1f} s{what}")
            failed = found.status == _COULD_NOT_RUN
            self._stopping.wait(min(self._every_s, _SOONER_S) if failed else self._every_s)

    def stop(self) -> None:
        """Ends the audit that runs, and begins no other."""
        self._stopping.set()
        if self._running is not None:
            with contextlib.suppress(ProcessLookupError):
                self._running.terminate()

    def _audit(self) -> Audited:
        told = {name: self._folder / f"new.{name}" for name in ("audit.json", "audit.html")}
        for path in told.values():
            path.unlink(missing_ok=True)
        began = time.monotonic()
        self._running = subprocess.Popen(
            [
                *self._command,
                *("--json", str(told["audit.json"]), "--html", str(told["audit.html"])),
            ]
        )
        if self._stopping.is_set():  # told so between the two
            self._running.terminate()
        status = self._running.wait()
        seconds = time.monotonic() - began
        report = _report(told["audit.json"])
        if report is None or status not in _VERDICTS:
            return Audited(status, _COULD_NOT_RUN, seconds, time.time(), None)
        for name, path in told.items():
            if path.exists():
                path.replace(self._folder / name)
        return Audited(status, status, seconds, time.time(), report)


def _report(path: Path) -> dict[str, Any] | None:
    """What an audit wrote; none if it did not come to that, or not to its end."""
    try:
        found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    return found


def _handler(service: Service, folder: Path) -> type[BaseHTTPRequestHandler]:
    pages = {"/": ("audit.html", "text/html"), "/audit.json": ("audit.json", "application/json")}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/metrics":
                self._answer(200, "text/plain", generate_latest(service.registry))
                return
            name, kind = pages.get(self.path, ("", ""))
            if name and (folder / name).exists():
                self._answer(200, kind, (folder / name).read_bytes())
            elif name:
                self._answer(503, "text/plain", b"no audit has ended yet\n")
            else:
                self._answer(404, "text/plain", b"there are /, /audit.json and /metrics\n")

        def log_message(self, *_: object) -> None:
            """Says nothing of requests, which come all the time."""

        def _answer(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler


def main() -> int:
    """Serves and audits until SIGTERM."""
    parser = argparse.ArgumentParser(description="Audit again and again, and serve the verdict.")
    parser.add_argument("--every", type=float, required=True, help="seconds between two audits")
    parser.add_argument("--port", type=int, required=True, help="of /metrics; 0: any free one")
    parser.add_argument("--folder", type=Path, required=True, help="where reports are kept")
    parser.add_argument("command", nargs="+", help="the audit")
    given = parser.parse_args()
    service = Service(given.every, given.folder, given.command)

    def stop(_signal: int, _frame: FrameType | None) -> None:
        service.stop()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    handler = _handler(service, given.folder)
    with ThreadingHTTPServer(("", given.port), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        _say(f"serving at port {server.server_address[1]}")
        service.run()
        server.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
