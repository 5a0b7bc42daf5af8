"""gunicorn that preloads and Celery's prefork, as `docs/processes.md` shows them; real Kafka."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from support.topic_cluster import TopicCluster
from support.waiting import WAIT_S

pytestmark = pytest.mark.long

_PAGE = Path(__file__).parents[2] / "docs" / "processes.md"
_CONFIG = """
broker_url = "filesystem://"
broker_transport_options = {"data_folder_in": "sent", "data_folder_out": "sent"}
result_backend = "file://results"
worker_enable_remote_control = False
"""
_CALL = """
from celery import Celery
app = Celery("caller")
app.config_from_object("celeryconfig")
print(app.send_task("tasks.pay", ["order-1"]).get(timeout=60, interval=0.05))
"""


def _files(folder: Path, cluster: TopicCluster, topic: str, replaced: str = "") -> None:
    """Writes the page's files. `replaced`: left out, and the client is made by the import."""
    page = _PAGE.read_text().replace("pulsar://node-1:6650", cluster.url)
    page = page.replace("public/default/orders", topic)
    for name, shown in re.findall(r"```python\n# (\S+\.py)\n(.*?)```", page, re.DOTALL):
        text = shown.replace(replaced, "")
        if replaced and "def open_client" in text:
            text += "\nopen_client()\n"
        (folder / name).write_text(text)
    (folder / "celeryconfig.py").write_text(_CONFIG)
    for each in ("sent", "results"):
        (folder / each).mkdir()


@contextmanager
def _running(folder: Path, *command: str, held: Sequence[int] = ()) -> Iterator[Path]:
    """The program, and what it logs."""
    log = folder / "log"
    with log.open("wb") as out:
        program = subprocess.Popen(
            [sys.executable, "-m", *command], cwd=folder, stdout=out, stderr=out, pass_fds=held
        )
    try:
        yield log
    finally:
        program.terminate()
        program.wait(WAIT_S)


def _asked(folder: Path) -> tuple[int, str]:
    """The status of gunicorn's answer, which its only worker gives, and its log."""
    with socket.create_server(("127.0.0.1", 0)) as port:
        bound = f"fd://{port.fileno()}"
        with _running(folder, "gunicorn", "--bind", bound, held=[port.fileno()]) as log:
            address = f"http://127.0.0.1:{port.getsockname()[1]}/order-1"
            status = httpx.get(address, timeout=WAIT_S).status_code
    return status, log.read_text()


def test_workers_of_gunicorn_send_by_a_client_of_their_own_and_by_no_other(
    cluster: TopicCluster, topic: str, tmp_path: Path
) -> None:
    _files(tmp_path, cluster, topic)
    status, log = _asked(tmp_path)
    assert (status, "Traceback" in log) == (200, False), log


def test_a_client_that_gunicorn_preloads_is_refused_in_its_workers(
    cluster: TopicCluster, topic: str, tmp_path: Path
) -> None:
    _files(tmp_path, cluster, topic, "    orders.open_client()\n")
    status, log = _asked(tmp_path)
    assert status == 500
    assert "ForkedError: the client of" in log
    assert "post_fork" in log


@pytest.mark.parametrize("made_at_import", [False, True])
def test_tasks_of_celery_s_prefork_send_by_a_client_of_their_own_and_by_no_other(
    cluster: TopicCluster, topic: str, tmp_path: Path, made_at_import: bool
) -> None:
    _files(tmp_path, cluster, topic, "@worker_process_init.connect\n" if made_at_import else "")
    options = ("--pool", "prefork", "--concurrency", "2", "--without-mingle", "--without-gossip")
    with _running(tmp_path, "celery", "-A", "tasks", "worker", *options) as log:
        call = subprocess.run(
            [sys.executable, "-c", _CALL],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONWARNINGS": "ignore"},
            timeout=120,
        )
    if made_at_import:
        assert "ForkedError: the client of" in call.stderr, log.read_text()
        assert "worker_process_init" in call.stderr
    else:
        assert call.stdout == "0\n", (call.stderr, log.read_text())
