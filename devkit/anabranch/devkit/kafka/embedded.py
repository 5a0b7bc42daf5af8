"""`EmbeddedKafka`: a real Kafka node, broker and controller in one, as a child process."""

import contextlib
import fcntl
import os
import subprocess
import sys
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from anabranch.core.errors import AnabranchError
from anabranch.devkit import ports
from anabranch.devkit.kafka import settings
from anabranch.jars.cache import resolve
from anabranch.jars.java import find_java

_SUPERVISOR: Final = Path(__file__).with_name("supervisor.py")
_START_SECONDS_MAX: Final = 180.0  # one that ended is noticed at once
_STOP_SECONDS_MAX: Final = 30.0
_FORMAT_SECONDS_MAX: Final = 180.0
_PROBE_SECONDS: Final = 0.25
_LAST_WORDS_BYTES_MAX: Final = 32_768
# Between choosing a free port and listening on it another process may take it.
_PORT_ATTEMPTS_MAX: Final = 3
LOCK: Final = "anabranch.lock"
_LINES_SHOWN_MAX: Final = 12
_REMEDIES: Final = (
    ("No space left on device", "The disk is full: make room, or name another data directory."),
    (
        "Address already in use",
        "Another process took the port meanwhile: start again, or choose another port.",
    ),
    ("Permission denied", "The data directory is not writable: correct its permissions."),
    ("Could not reserve enough space", "There is too little memory: Kafka needs about 600 MB."),
    (
        "UnsupportedClassVersionError",
        "Java is too old: install version 17 or newer, or name it in JAVA_HOME.",
    ),
)
_UNKNOWN: Final = (
    "If the data directory is of another Kafka or damaged, name an empty one; "
    "`anabranch doctor` checks the rest."
)


class KafkaStartError(AnabranchError):
    """Kafka ended, or did not answer in time, while it was being started."""


def explain(what: str, data_dir: Path, said: str) -> str:
    """Returns the message for a user: the event, the remedy, and the last telling lines
    of the log.
    """
    remedy = next((text for sign, text in _REMEDIES if sign in what or sign in said), _UNKNOWN)
    lines = [line for line in said.splitlines() if line.strip()]
    # The begin of an error tells more than the shutdown that follows it.
    telling = [
        line for line in lines if " ERROR " in line or " FATAL " in line or "Exception" in line
    ]
    shown = "".join(f"\n  | {line[:300]}" for line in (telling or lines)[-_LINES_SHOWN_MAX:])
    return f"{what} {remedy} Data directory and logs: {data_dir}{shown}"


def new_cluster_id() -> str:
    """Returns an id in Kafka's form, for the nodes of one cluster."""
    cluster_id = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    # An option may not begin with a dash, and Kafka's ids do not either.
    return "A" + cluster_id[1:]


class EmbeddedKafka:
    """One Kafka node on 127.0.0.1 with its data, settings and logs in one directory.

    It starts and stops any number of times, always on the same port and data. With port 0 it
    chooses a free one at the first start. It ends with this process, even if that is killed. Until
    it has ended, no other one starts on the directory. It is a context manager, too, which starts
    and stops it. Use it from one thread at a time.

    `second_listener` has a second port, and the port that it tells the clients of this one to
    connect to, for example a proxy's. `differences` are for a node that is one of several, or that
    asks its clients for their identity.
    """

    def __init__(
        self,
        data_dir: Path,
        port: int = 0,
        second_listener: tuple[int, int] | None = None,
        *,
        differences: settings.Differences | None = None,
    ) -> None:
        self._dir = data_dir.absolute()
        self._port = port
        self._second_listener = second_listener
        self._differences = differences or settings.Differences()
        self._supervisor: subprocess.Popen[bytes] | None = None
        self._log_bytes_before = 0

    @property
    def bootstrap_servers(self) -> str:
        """The address for clients, known after the first start."""
        if self._port == 0:
            raise RuntimeError("the embedded Kafka has no port before its first start")
        return f"{settings.HOST}:{self._port}"

    @property
    def log_file(self) -> Path:
        """Kafka's own log."""
        return self._dir / "kafka.log"

    @property
    def is_running(self) -> bool:
        """True while the process is there. It may have ended by itself."""
        return self._supervisor is not None and self._supervisor.poll() is None

    def start(self, deadline_s: float = _START_SECONDS_MAX) -> None:
        """Starts the node and returns when it answers. It fetches and formats what is not there
        yet.

        Raises errors of Java or the jars, or `KafkaStartError` with the end of Kafka's log and the
        remedy. Nothing is left running then.
        """
        if self.is_running:
            raise RuntimeError(f"the embedded Kafka in {self._dir} is running already")
        java = find_java()
        class_path = os.pathsep.join(str(jar) for jar in resolve(self._differences.jars))
        self._make_dir()
        chosen_here = self._port == 0
        for attempt in range(1, _PORT_ATTEMPTS_MAX + 1):
            if chosen_here:
                self._port = ports.free_port(settings.HOST)
            try:
                self._start_once([str(java), "-cp", class_path], deadline_s)
            except KafkaStartError:
                self.kill()
                lost_port = chosen_here and not ports.is_free(settings.HOST, self._port)
                if not lost_port or attempt == _PORT_ATTEMPTS_MAX:
                    raise
            except BaseException:
                self.kill()
                raise
            else:
                return

    def stop(self, deadline_s: float = _STOP_SECONDS_MAX) -> None:
        """Ends the node cleanly, by force after the deadline. Does nothing if it has ended."""
        self._order(b"T")
        self._reap(deadline_s)

    def kill(self) -> None:
        """Ends the node with SIGKILL, as a crash would. Does nothing if it has ended."""
        self._order(b"K")
        self._reap(_STOP_SECONDS_MAX)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _make_dir(self) -> None:
        try:
            self._dir.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise KafkaStartError(
                f"The data directory {self._dir} cannot be made: {error.strerror}. "
                "Name another one, or correct its permissions."
            ) from error

    def _start_once(self, java: list[str], deadline_s: float) -> None:
        deadline = time.monotonic() + deadline_s
        # Before anything is written: the files may be those of a Kafka that runs. Once launched,
        # Kafka and its supervisor hold the lock; ours ends, lest a fork of ours keep it.
        with exclusive(self._dir) as lock:
            self._launch_on_data(java, lock)
        self._await_ready(deadline)

    def _launch_on_data(self, java: list[str], lock: int) -> None:
        """Writes the settings, formats the directory if it is new, and launches."""
        if not ports.is_free(settings.HOST, self._port):
            raise KafkaStartError(
                f"Port {self._port} of {settings.HOST} is in use. "
                "Stop what listens there, or choose another port (0: any free one)."
            )
        log_dir = self._dir / "log"
        self._log_bytes_before = self.log_file.stat().st_size if self.log_file.exists() else 0
        properties = self._dir / "server.properties"
        text = settings.server_properties(
            log_dir,
            self._port,
            ports.free_port(settings.HOST),
            self._second_listener,
            differences=self._differences.server,
        )
        try:
            properties.write_text(text, encoding="ascii")
            if not (log_dir / "meta.properties").exists():
                self._format(java, properties, lock)
            # Each start has a console of its own, so that an old complaint is not taken for new.
            with self._console.open("wb") as console:
                self._supervisor = self._launch(java, properties, console.fileno(), lock)
        except OSError as error:
            raise self._failed(
                f"{error.strerror or error} ({error.filename or self._dir})"
            ) from error

    @property
    def _jvm_options(self) -> tuple[str, ...]:
        return (f"-Xmx{self._differences.heap_mb}m", *settings.JVM_OPTIONS)

    @property
    def _console(self) -> Path:
        return self._dir / "console.log"

    def _format(self, java: list[str], properties: Path, lock: int) -> None:
        """Gives the empty data directory its cluster id and feature levels, because Kafka needs
        them.
        """
        cluster_id = self._differences.cluster_id or new_cluster_id()
        command = [*java[:1], *self._jvm_options, *java[1:], "kafka.tools.StorageTool", "format"]
        command += ["-t", cluster_id, "-c", str(properties)]
        try:
            answer = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_FORMAT_SECONDS_MAX,
                check=False,
                # It outlives us if we are killed now, and writes.
                pass_fds=(lock,),
            )
        except subprocess.TimeoutExpired as error:
            raise self._failed(f"Formatting took more than {_FORMAT_SECONDS_MAX:.0f} s.") from error
        if answer.returncode != 0:
            raise self._failed(
                "The data directory could not be formatted.", answer.stdout + answer.stderr
            )

    def _launch(
        self, java: list[str], properties: Path, console: int, lock: int
    ) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-I", "-S", str(_SUPERVISOR), *java[:1], *self._jvm_options]
        command += [f"-Dlog4j2.configurationFile={settings.LOG4J_FILE}"]
        command += [f"-Danabranch.kafka.log={self.log_file}"]
        command += [*java[1:], "kafka.Kafka", str(properties)]
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=console,
            stderr=subprocess.STDOUT,
            # Not in our process group: a Ctrl-C is for us, who then stop Kafka after its clients.
            start_new_session=True,
            pass_fds=(lock,),
        )

    def _await_ready(self, deadline: float) -> None:
        client = AdminClient(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 50,
                "log_level": 0,
                **self._differences.client,
            }
        )
        while time.monotonic() < deadline:
            if not self.is_running:
                raise self._failed("Kafka ended while it was starting.")
            with contextlib.suppress(KafkaException):
                # Waits by itself while nobody answers. A broker that is not yet admitted by the
                # controller answers with no broker at all.
                if client.list_topics(timeout=_PROBE_SECONDS).brokers:
                    return
        raise self._failed("Kafka did not answer in time.")

    def _failed(self, what: str, said: str | None = None) -> KafkaStartError:
        return KafkaStartError(explain(what, self._dir, said or self._last_words()))

    def _last_words(self) -> str:
        """Returns Kafka's words since this start, from the log or else from the console."""
        texts = []
        for path, before in ((self.log_file, self._log_bytes_before), (self._console, 0)):
            with contextlib.suppress(OSError), path.open("rb") as file:
                size = path.stat().st_size
                # Smaller than before: the log has been rolled over meanwhile.
                file.seek(max(before if before <= size else 0, size - _LAST_WORDS_BYTES_MAX))
                texts.append(file.read().decode(errors="replace"))
        return "\n".join(texts)

    def _order(self, order: bytes) -> None:
        if self._supervisor is not None and self._supervisor.stdin is not None:
            with contextlib.suppress(BrokenPipeError, ValueError):
                self._supervisor.stdin.write(order)
                self._supervisor.stdin.flush()

    def _reap(self, deadline_s: float) -> None:
        supervisor = self._supervisor
        if supervisor is None:
            return
        try:
            supervisor.wait(deadline_s)
        except subprocess.TimeoutExpired:
            self._order(b"K")
            supervisor.wait()
        if supervisor.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                supervisor.stdin.close()
        self._supervisor = None


@contextlib.contextmanager
def exclusive(data_dir: Path) -> Iterator[int]:
    """Holds the lock that gives a data directory to one Kafka, started by any process.

    Kafka has a `.lock` of its own, but takes it too late: before that, a controller opens the
    metadata log and writes to it. A second Kafka could thus become the leader on the files of the
    first.

    The lock belongs to the open file, not to a process. A process that inherits the descriptor
    holds it too. It ends when the last of them has closed it or ended, even by a crash. So it is
    never unlocked, only closed: an explicit unlock would take it from all of them. The file is not
    removed either: a waiting process could then lock the removed one, and a third its successor.

    Does not wait. Raises `KafkaStartError` if another one holds it or it cannot be taken.
    """
    path = data_dir / LOCK
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise _failed(data_dir, error) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            # Its logs are those of the other one, who is well: they would only mislead.
            raise KafkaStartError(
                "Another Kafka runs on this data directory: stop it, or name another directory. "
                f"Data directory: {data_dir}"
            ) from error
        except OSError as error:
            raise _failed(data_dir, error) from error
        yield descriptor
    finally:
        os.close(descriptor)


def _failed(data_dir: Path, error: OSError) -> KafkaStartError:
    what = f"{data_dir / LOCK} cannot be locked: {error.strerror or error}."
    return KafkaStartError(explain(what, data_dir, ""))
