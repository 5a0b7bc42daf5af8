"""What the images run: audits.py, with an audit that ends as it is told to, and health.py."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families
from starlette.types import Receive, Scope, Send

from anabranch.broker.settings import load_settings
from support.authority import Authority
from support.http import http_nodes
from support.memory_cluster import until
from support.metrics_page import ROOT, Row, documented
from support.tls_port import tls_port
from support.waiting import eventually

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


# --- docker/health.py, run as Docker runs it, says of a container whether its process serves ------


_CHECK: Final = ROOT / "docker" / "health.py"


async def _is_healthy(environment: Mapping[str, str]) -> bool:
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, str(_CHECK)],
        env=dict(environment),
        capture_output=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr.decode()
    return done.returncode == 0


async def _becomes_healthy(environment: Mapping[str, str]) -> None:
    """Once the machine has time for it: the check gives a node two seconds."""
    await eventually(lambda: _is_healthy(environment))


ENVIRONMENTS: Final[tuple[dict[str, str], ...]] = (
    {"ANABRANCH_WEBSERVICEPORT": "{0}"},
    {"ANABRANCH_webServicePort": "{0}"},
    {"ANABRANCH_WEB_SERVICE_PORT": "{0}", "ANABRANCH_BIND_ADDRESS": "127.0.0.1"},
    {
        "ANABRANCH_WEB_SERVICE_HOST": "10.0.0.1",  # of another service, on some platforms
        "ANABRANCH_WEB_SERVICE_PORT": "1",
        "ANABRANCH_webServicePort": "{0}",
    },
)


async def test_the_port_is_found_as_the_node_finds_it() -> None:
    async with http_nodes() as (nodes, _):
        port = nodes[0].http.base_url.port
        for environment in ENVIRONMENTS:
            told = {name: value.format(port) for name, value in environment.items()}
            assert load_settings(None, told, {}).web_service_port == port
            await _becomes_healthy(told)


async def test_a_node_that_runs_and_does_not_serve_is_not_healthy() -> None:
    async with http_nodes(leaseMillis=2_000, livenessTimeoutMillis=3_000) as (nodes, _):
        told = {"ANABRANCH_WEB_SERVICE_PORT": str(nodes[0].http.base_url.port)}
        await _becomes_healthy(told)
        nodes[0].node.connected = False
        await until(lambda: not nodes[0].node.runtime.has_lease)
        assert not await _is_healthy(told)
        assert not await _is_healthy({"ANABRANCH_WEB_SERVICE_PORT": "1"}), "nobody is there"


@pytest.mark.parametrize("required", [False, True], ids=["anybody", "certified"])
async def test_where_there_is_only_tls_that_is_asked(tmp_path: Path, *, required: bool) -> None:
    authority = Authority(tmp_path)
    node = authority.issue("node", host="10.0.0.1", server=True)  # its name outside
    own = authority.issue("own")

    trusted = authority.file if required else None
    async with tls_port(node, trusted, app=_ready, required=required) as port:
        told = {
            "ANABRANCH_WEB_SERVICE_PORT": "",
            "ANABRANCH_WEB_SERVICE_PORT_TLS": str(port.web_port),
        }
        if required:
            assert not await _is_healthy(told)
        else:
            await _becomes_healthy(told)
        told["ANABRANCH_BROKER_CLIENT_CERTIFICATE_FILE_PATH"] = str(own.certificate)
        told["ANABRANCH_brokerClientKeyFilePath"] = str(own.key)
        await _becomes_healthy(told)


async def _ready(scope: Scope, _receive: Receive, send: Send) -> None:
    status = 200 if scope["path"] == "/readyz" else 404
    await send({"type": "http.response.start", "status": status, "headers": []})
    await send({"type": "http.response.body", "body": b"ok"})
