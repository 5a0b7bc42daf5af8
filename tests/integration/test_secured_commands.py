"""Every command that asks a cluster, on one that is secured, with nothing but the environment.

The cluster is `anabranch dev --secure`, with TLS, tokens, rights and Kafka's ACLs; the environment
is what its `environment.sh` exports.
"""

from __future__ import annotations

import multiprocessing
import os
import shlex
import signal
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import click
import pytest
from click.testing import CliRunner

from anabranch.cli.main import cli
from anabranch.core.errors import AnabranchError
from anabranch.core.security.table import COMMANDS
from anabranch.devkit.demo.story import SETTINGS
from support.processes import COMMAND, DEV_SETTINGS, HOST, START_S_MAX, Dev, dev, run

TOPIC: Final = "acme/shop/orders"
# Each command once and in an order in which each finds what it needs; BROKER is a node's id.
STEPS: Final = f"""
tenants create acme
tenants list
tenants show acme
tenants update acme --admin-role boss
namespaces create acme/shop --bundles 2
namespaces list acme
namespaces show acme/shop
namespaces anti-affinity acme/shop apart
namespaces limit acme/shop maxTopicsPerNamespace 50
permissions grant acme/shop ada produce consume
permissions list acme/shop
permissions revoke acme/shop ada
namespaces split acme/shop 0x00000000_0x80000000
bundles split acme/shop 0x80000000_0xffffffff
bundles list acme/shop
topics create {TOPIC} --segments 2
lookup {TOPIC}
topics list acme/shop
topics show {TOPIC}
topics stats {TOPIC}
topics properties {TOPIC} --set team=shop
policy set {TOPIC} enabled=false
policy show {TOPIC}
policy remove {TOPIC} enabled
policy set acme/shop enabled=false
topics subscriptions create {TOPIC} jobs --type queue
topics subscriptions list {TOPIC}
topics subscriptions dead-letters set {TOPIC} jobs --deliveries 3
topics subscriptions dead-letters show {TOPIC} jobs
topics subscriptions dead-letters remove {TOPIC} jobs
topics subscriptions create {TOPIC} billing --start earliest
topics produce {TOPIC} --key ada
topics peek {TOPIC} --from earliest
topics consume {TOPIC} --subscription billing --max 1 --timeout 60
topics subscriptions seek {TOPIC} billing --to earliest
topics subscriptions skip-all {TOPIC} billing
topics subscriptions delete {TOPIC} billing
topics split {TOPIC} 0
topics merge {TOPIC} 2 3
topics rebucket {TOPIC} 1 4
topics relocate {TOPIC} 5
segments strays {TOPIC} 0
segments abort-transaction {TOPIC} 0 --yes
segments restore {TOPIC} 5 --yes
topics unload {TOPIC}
namespaces unload acme/shop
bundles unload acme/shop 0x80000000_0xbfffffff
bundles transfer acme/shop 0x80000000_0xbfffffff BROKER
brokers
isolation set gold --namespace acme/.* --primary .*
isolation list
isolation brokers
isolation delete gold
domains set east BROKER
domains list
domains delete east
balance show
balance history
config set lookupTimeoutMillis 5000
config list
config unset lookupTimeoutMillis
log tail --no-follow
doctor --url URL
topics delete {TOPIC} --yes --force
topics delete {TOPIC}-jobs-DLQ --yes
namespaces delete acme/shop
tenants delete acme
"""
# These are tested one by one below: they go on for ever, or for long, or want a Spark.
APART: Final = {"topics watch", "demo", "archive", "audit"}
# They run a node, a proxy or a cluster of their own, or read files alone.
OFFLINE: Final = {
    *("dev", "dev-role", "node", "proxy", "settings", "token create", "token inspect"),
    *("token keys", "backtest"),
}
# What is refused for another reason than who asks: this Kafka has one broker.
REFUSED: Final = {
    "topics relocate": "segments can lie nowhere else",
    "segments abort-transaction": "no transaction holds it back",
    "segments restore": "is not lost",
}
# These take the process's own input and signals, so they are run in one of their own.
APARTLY: Final = {"topics produce", "topics consume", "topics peek"}
OF_KAFKA: Final = {"balance history", "log tail"}


class Cluster(NamedTuple):
    """A secured one that runs, and what its shell exports."""

    dev: Dev
    folder: Path
    environment: Mapping[str, str]

    @property
    def broker(self) -> str:
        return f"{HOST}:{self.dev.port}"

    def run_as(self, role: str, *words: str) -> subprocess.CompletedProcess[str]:
        """In a process of its own, as a role that `dev-role` makes; "" for the superuser."""
        changed: dict[str, str] = {}
        if role:
            data = self.folder / "data"
            made = run("dev-role", role, "--data-dir", str(data))
            assert made.returncode == 0, made.stderr
            changed = exports(data / "security" / "roles" / f"{role}.sh")
        return run(*words, **{**self.environment, **changed})


def exports(file: Path) -> dict[str, str]:
    lines = (shlex.split(line) for line in file.read_text().splitlines())
    pairs = (words[1].partition("=") for words in lines if words[:1] == ["export"])
    return {name: value for name, _, value in pairs}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("secured")
    patient = "perIpLimitExemptAddresses=127.0.0.1"  # with who shows nothing so often
    settings = (*DEV_SETTINGS, *SETTINGS, patient)
    with dev(folder, nodes=2, settings=settings, flags=("--secure",)) as running:
        running.await_line("ready: 2 nodes")
        yield Cluster(running, folder, exports(folder / "data" / "security" / "environment.sh"))


def name_of(line: str) -> str:
    """The command that a line is an example of: the longest that it begins with."""
    return max((each for each in COMMANDS if f"{line} ".startswith(f"{each} ")), key=len)


def invoked(line: str, environment: Mapping[str, str | None]) -> tuple[int, str]:
    """What a command ends in, and all that it said; for a process of its own, as commands leave
    their connections to its end.
    """
    if name_of(line) in APARTLY:
        ended = run(*shlex.split(line), lines="one\n", **environment)
        return ended.returncode, ended.stdout + ended.stderr
    words = shlex.split(line)
    done = CliRunner().invoke(cli, words, env=environment, standalone_mode=False)
    error = done.exception
    if isinstance(error, click.ClickException):
        return error.exit_code, f"{done.output}{error.format_message()}"
    if error is not None:
        kind = "" if isinstance(error, AnabranchError) else f"a fault, {done.exc_info}: "
        return 2, f"{done.output}{kind}{error}"
    return done.return_value or 0, done.output


LINES: Final = STEPS.strip().splitlines()


def test_every_command_is_tried() -> None:
    tried = [name_of(line) for line in LINES]
    assert set(tried) | APART | OFFLINE == set(COMMANDS)
    assert not set(tried) & (APART | OFFLINE)


@pytest.mark.long
def test_every_command_asks_a_secured_cluster_as_the_environment_says(
    secured: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    known: dict[str, str | None] = {**secured.environment}
    url = secured.environment["ANABRANCH_URL"]
    wrong: list[str] = []
    with multiprocessing.get_context("spawn").Pool(1) as pool:

        def ends(line: str, status: int, said: str, **changed: str | None) -> None:
            """Notes the command unless it ends so; a hang is told by whom it is of."""
            waiting = pool.apply_async(invoked, (line, {**known, **changed}))
            try:
                found = waiting.get(START_S_MAX)
            except multiprocessing.TimeoutError:
                raise AssertionError(f"{line} does not end; before that: {wrong}") from None
            if found[0] != status or said not in found[1]:
                wrong.append(f"{line}, with {changed}: {found}")

        for each in LINES:
            line, name = each.replace("BROKER", secured.broker).replace("URL", url), name_of(each)
            if name not in OF_KAFKA:
                ends(line, 1, "Show who you are", ANABRANCH_TOKEN_FILE=None)
                status = 1 if name == "doctor" else 2
                ends(line, status, "not trusted", ANABRANCH_TLS_CA=None)
            ends(line, 1 if name in REFUSED else 0, REFUSED.get(name, ""))
    assert not wrong, "\n".join(wrong)


@pytest.mark.long
def test_topics_are_watched_on_a_secured_cluster(secured: Cluster) -> None:
    made = secured.run_as("", "topics", "create", "public/default/watched")
    assert made.returncode == 0, made.stderr
    with subprocess.Popen(
        [*COMMAND, "topics", "watch", "public/default", "--pattern", "watched"],
        env={**os.environ, **secured.environment},
        stdout=subprocess.PIPE,
        text=True,
    ) as watching:
        assert watching.stdout is not None
        try:
            assert "watched" in watching.stdout.readline()
        finally:
            watching.send_signal(signal.SIGINT)
        assert watching.wait(START_S_MAX) == 130


@pytest.mark.long
@pytest.mark.spark
def test_the_log_of_a_secured_cluster_is_archived_and_audited(secured: Cluster) -> None:
    where = ("--archive-dir", str(secured.folder / "archive"))
    for words in (("archive", "--once", *where), ("archive", "--list"), ("audit", *where)):
        done = secured.run_as("", *words)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long
def test_the_demo_s_load_is_for_who_may_make_its_tenant(secured: Cluster) -> None:
    urls = ",".join(f"https://{HOST}:{secured.dev.port + number}" for number in range(2))
    servers = secured.environment["ANABRANCH_BOOTSTRAP_SERVERS"]
    words = ("demo", "--nodes", urls, "--bootstrap-servers", servers)
    refused = secured.run_as("eve", *words)
    assert refused.returncode == 1, refused.stdout + refused.stderr
    assert "anabranch tenants create demo --admin-role ROLE" in refused.stderr
    done = secured.run_as("", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "every message arrived once and in its key's order" in done.stdout
    # What is there now she may not see, and it is not said that it is.
    hidden = secured.run_as("eve", *words)
    assert (hidden.returncode, hidden.stderr) == (1, refused.stderr)
