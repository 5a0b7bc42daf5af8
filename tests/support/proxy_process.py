"""`anabranch proxy` as a process of its own."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from support.processes import COMMAND, HOST, STOP_S_MAX, awaited

_STARTED = re.compile(r"proxy\.started web_url=(\S+) service_url=(\S+) ")


class ProxyProcess:
    """Listens on whichever ports are free, and says which."""

    def __init__(
        self, name: str, nodes: Sequence[str], folder: Path, settings: Sequence[str] = ()
    ) -> None:
        self.output = folder / f"{name}.out"
        command = [*COMMAND, "proxy", "--nodes", "http://" + ",".join(nodes)]
        command += ["--http-port", "0", "--service-port", "0"]
        for setting in (f"advertisedAddress={HOST}", *settings):
            command += ["--set", setting]
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        told = awaited(lambda: _STARTED.search(self.text()), self.process, self.text)
        self.web_url, self.service_url = told.groups()

    def text(self) -> str:
        return self.output.read_text(errors="replace")

    def stop(self) -> int:
        """SIGTERM; the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_S_MAX)


@contextmanager
def proxy_process(
    name: str, nodes: Sequence[str], folder: Path, settings: Sequence[str] = ()
) -> Iterator[ProxyProcess]:
    """`nodes`: host:port of their ports of HTTP."""
    proxy = ProxyProcess(name, nodes, folder, settings)
    try:
        yield proxy
    finally:
        if proxy.process.poll() is None:
            proxy.process.kill()
            proxy.process.wait(STOP_S_MAX)
