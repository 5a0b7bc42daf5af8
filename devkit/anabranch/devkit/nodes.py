"""Nodes as child processes, for `dev`, the demo and tests.

A node that is started here ends when this process is gone, even if that was killed. It holds the
reading end of a pipe whose other end only we have, and `--end-with-parent` makes it watch that.
"""

from __future__ import annotations

import contextlib
import os
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import httpx

from anabranch.access.kafka import name_of_variable
from anabranch.broker.settings.environment import ENVIRONMENT_PREFIX
from anabranch.core.errors import AnabranchError

if TYPE_CHECKING:  # its imports take a while
    from anabranch.devkit.security import DevSecurity

HOST: Final = "127.0.0.1"
ON_ONE_MACHINE: Final = (
    f"bindAddress={HOST}",
    f"advertisedAddress={HOST}",
    "replicationFactor=1",
    "minInsyncReplicas=1",
)
# Settings by which nodes measure the messages of topics in seconds instead of minutes.
MEASURES: Final = ("scalableTopicLoadReportIntervalSeconds=0.5", "scalableTopicLoadWindowSeconds=3")
# A node gets its credentials for Kafka from here, like Kafka's address. Those of the environment
# are for another Kafka, for example in the shell of a role that `dev --secure` has made.
_OF_A_KAFKA: Final = frozenset(
    ENVIRONMENT_PREFIX + name
    for name in (
        *("kafkaPropertiesFile", "KAFKA_PROPERTIES_FILE"),
        *("kafkaTokenProvider", "KAFKA_TOKEN_PROVIDER"),
    )
)
_START_SECONDS_MAX: Final = 120.0
_STOP_SECONDS_MAX: Final = 20.0
_PROBE_SECONDS: Final = 0.05
_ANSWER_SECONDS_MAX: Final = 20.0
_LAST_WORDS_BYTES: Final = 2_000


class ChildError(AnabranchError):
    """A node ended, or did not become ready, while it was being started."""


class NodeProcess:
    """One `anabranch node` on this machine. It starts and stops any number of times.

    With `secured` its ports are those with TLS, and it asks for identities.
    """

    def __init__(
        self,
        name: str,
        http_port: int,
        bootstrap_servers: str,
        data_dir: Path,
        *settings: str,
        service_port: int = 0,
        secured: DevSecurity | None = None,
    ) -> None:
        self.name = name
        self.port = http_port
        self.url = f"{'http' if secured is None else 'https'}://{HOST}:{http_port}"
        self.broker_id = f"{HOST}:{http_port}"
        self.log_file = data_dir / f"{name}.log"
        self._command = [
            *(sys.executable, "-m", "anabranch.cli", "node", "--end-with-parent"),
            *("--bootstrap-servers", bootstrap_servers),
            *("--data-dir", str(data_dir / name)),
        ]
        self._secured = secured
        before = () if secured is None else secured.settings
        ports = _ports(http_port, service_port, is_tls=secured is not None)
        for setting in (*ON_ONE_MACHINE, *before, *settings, *ports):
            self._command += ["--set", setting]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The process id while it runs, else None."""
        return self._process.pid if self._process and self.is_running else None

    @property
    def is_running(self) -> bool:
        """True while the process is there."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Starts the process and returns at once."""
        self.log_file.parent.mkdir(parents=True, exist_ok=True)
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={
                    name: value
                    for name, value in os.environ.items()
                    if name not in _OF_A_KAFKA and not name_of_variable(name)
                },
                # A Ctrl-C is for us, who then stop the nodes before their Kafka.
                start_new_session=True,
            )

    def is_ready(self) -> bool:
        """Returns True if it serves. Raises ChildError if it has ended."""
        if not self.is_running:
            raise ChildError(f"{self.name} ended while it was starting:\n{self.last_words()}")
        try:
            return self._get("/readyz").is_success
        except httpx.HTTPError:
            return False

    def service_url(self) -> str:
        """Returns the node's own URL for clients. It must be ready. Raises ChildError."""
        try:
            field = "serviceUrl" if self._secured is None else "serviceUrlTls"
            return str(self._get("/admin/v2/brokers/status").json()[field])
        except (httpx.HTTPError, ValueError, KeyError) as error:
            raise ChildError(f"{self.name} does not say its serviceUrl: {error!r}") from None

    def kill(self) -> None:
        """Ends it as a crash would."""
        self._end(signal.SIGKILL)
        self.wait(_STOP_SECONDS_MAX)

    def terminate(self) -> None:
        """Asks it to hand everything over and end. Returns at once."""
        self._end(signal.SIGTERM)

    def wait(self, seconds_max: float) -> bool:
        """Returns True if it ends in that time."""
        if self._process is None:
            return True
        try:
            self._process.wait(seconds_max)
        except subprocess.TimeoutExpired:
            return False
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        return True

    @property
    def exit_status(self) -> int | None:
        """Returns its status once it has ended. A negative one is the signal that ended it."""
        return self._process.poll() if self._process else None

    def last_words(self) -> str:
        """Returns the end of its log."""
        with contextlib.suppress(OSError), self.log_file.open("rb") as file:
            file.seek(max(0, self.log_file.stat().st_size - _LAST_WORDS_BYTES))
            return file.read().decode(errors="replace").strip()
        return f"(no log at {self.log_file})"

    def _get(self, path: str) -> httpx.Response:
        verify: ssl.SSLContext | bool = False
        headers: dict[str, str] = {}
        if self._secured is not None:
            verify = self._secured.context
            headers["Authorization"] = self._secured.authorization
        return httpx.get(
            self.url + path,
            headers=headers,
            verify=verify,
            timeout=_ANSWER_SECONDS_MAX,
            trust_env=False,
        )

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None and self.is_running:
            self._process.send_signal(how)


def _ports(http_port: int, service_port: int, *, is_tls: bool) -> tuple[str, ...]:
    """Returns the settings of a node's ports."""
    tls, none = ("Tls", ("webServicePort=", "brokerServicePort=")) if is_tls else ("", ())
    return *none, f"webServicePort{tls}={http_port}", f"brokerServicePort{tls}={service_port}"


def await_ready(nodes: Sequence[NodeProcess], seconds_max: float = _START_SECONDS_MAX) -> None:
    """Returns when all nodes serve. Raises ChildError."""
    deadline = time.monotonic() + seconds_max
    waiting = list(nodes)
    while waiting:
        waiting = [node for node in waiting if not node.is_ready()]
        if waiting and time.monotonic() > deadline:
            names = ", ".join(node.name for node in waiting)
            raise ChildError(
                f"{names} did not become ready in {seconds_max:.0f} s:\n{waiting[0].last_words()}"
            )
        if waiting:
            time.sleep(_PROBE_SECONDS)


def stop_all(nodes: Sequence[NodeProcess], seconds_max: float = _STOP_SECONDS_MAX) -> None:
    """Stops all nodes gracefully and at once. It kills the rest after that time."""
    for node in nodes:
        node.terminate()
    deadline = time.monotonic() + seconds_max
    for node in nodes:
        if not node.wait(max(0.0, deadline - time.monotonic())):
            node.kill()
