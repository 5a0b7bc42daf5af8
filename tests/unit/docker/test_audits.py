"""docker/audits.py, run as the container runs it, with an audit that ends as it is told to."""

from __future__ import annotations

import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from support.metrics_page import ROOT, Row, documented

_SERVICE: Final = ROOT / "docker" / "audits.py"
_REPORT: Final = (
    '{"records": 70, "log": {"next_offset": 71}, "checks": ['
    '{"name": "ownership", "violated": 2, "examined": 9}, '
    '{"name": "seals", "violated": 0, "examined": 4}]}'
)
# Writes what --json and --html name, as `anabranch audit` does, and ends with the given status.
_AUDIT: Final = """
import sys
from pathlib import Path
status, report = int(sys.argv[1]), sys.argv[2]
if status != 2:
    Path(sys.argv[sys.argv.index("--json") + 1]).write_text(report)
    Path(sys.argv[sys.argv.index("--html") + 1]).write_text("<h1>the page</h1>")
sys.exit(status)
"""
_FAILS: Final = "raise RuntimeError('of a bug, with the status of an audit that found something')"
_HANGS: Final = "import signal\nprint('auditing', flush=True)\nsignal.pause()"


@contextmanager
def _service(folder: Path, *audit: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    command = [sys.executable, str(_SERVICE), "--every", "900", "--port", "0"]
    running = subprocess.Popen(
        [*command, "--folder", str(folder), "--", sys.executable, "-c", *audit],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert running.stdout is not None
    assert running.stderr is not None
    try:
        port = running.stderr.readline().rpartition(" ")[2].strip()
        yield f"http://127.0.0.1:{port}", running
    finally:
        running.kill()
        running.wait()
        running.stdout.close()
        running.stderr.close()


def _page(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return str(answer.read().decode())


def _metrics(url: str) -> dict[str, Metric]:
    found = text_string_to_metric_families(_page(f"{url}/metrics"))
    return {each.name: each for each in found if not each.name.endswith("_created")}


def _values(metric: Metric) -> dict[tuple[str, ...], float]:
    return {tuple(sample.labels.values()): sample.value for sample in metric.samples}


def _row(metric: Metric) -> Row:
    name = f"{metric.name}_total" if metric.type == "counter" else metric.name
    return Row(name, metric.type, ", ".join(metric.samples[0].labels), metric.documentation)


def _await_an_end(running: subprocess.Popen[str]) -> None:
    assert running.stderr is not None
    said = iter(running.stderr.readline, "")  # an audit may say something, too
    assert any("an audit ended with status" in line for line in said)


def test_a_verdict_is_shown_with_its_page_by_metrics_that_are_documented(tmp_path: Path) -> None:
    with _service(tmp_path, _AUDIT, "1", _REPORT) as (url, running):
        _await_an_end(running)
        found = _metrics(url)
        assert _values(found["anabranch_audit_exit_status"]) == {(): 1}
        assert _values(found["anabranch_audit_violations"]) == {("ownership",): 2, ("seals",): 0}
        assert _values(found["anabranch_audit_examined"]) == {("ownership",): 9, ("seals",): 4}
        assert _values(found["anabranch_audit_next_offset"]) == {(): 71}
        assert _values(found["anabranch_audits"]) == {("1",): 1}
        assert _page(f"{url}/") == "<h1>the page</h1>"
        assert _page(f"{url}/audit.json") == _REPORT
        shown = {_row(each) for each in found.values() if each.samples}
        assert shown == set(documented("containers.md")), "the page names every metric of it"


@pytest.mark.parametrize(
    "audit",
    [
        pytest.param((_AUDIT, "2", _REPORT), id="could not run"),
        pytest.param((_FAILS,), id="failed"),
        pytest.param((_AUDIT, "0", '{"records": 7'), id="half a report"),
        pytest.param((_AUDIT, "137", _REPORT), id="killed behind a report"),
    ],
)
def test_an_audit_that_did_not_come_to_its_end_says_nothing_of_the_log(
    tmp_path: Path, audit: tuple[str, ...]
) -> None:
    (tmp_path / "audit.json").write_text('{"of": "an earlier one"}')
    with _service(tmp_path, *audit) as (url, running):
        _await_an_end(running)
        found = _metrics(url)
        assert _values(found["anabranch_audit_exit_status"]) == {(): 2}
        assert _values(found["anabranch_audit_violations"]) == {}
        assert _values(found["anabranch_audits"]) == {("2",): 1}
        assert _page(f"{url}/audit.json") == '{"of": "an earlier one"}'


def test_before_the_first_audit_nothing_is_called_sound(tmp_path: Path) -> None:
    with _service(tmp_path, _HANGS) as (url, running):
        assert running.stdout is not None
        assert running.stdout.readline() == "auditing\n"
        assert _values(_metrics(url)["anabranch_audit_exit_status"]) == {}
        with pytest.raises(urllib.error.HTTPError) as refused:
            _page(f"{url}/")
        assert refused.value.code == 503
        refused.value.close()
        running.send_signal(signal.SIGTERM)  # ends the audit that runs, too
        assert running.wait(60) == 0
