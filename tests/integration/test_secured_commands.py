"""Every command that asks a cluster, on one that is secured, with nothing but the environment.

The cluster is `anabranch dev --secure`, with TLS, tokens, rights and Kafka's ACLs; the environment
is what its `environment.sh` exports.
"""

from __future__ import annotations

import multiprocessing
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import click
import pytest
from click.testing import CliRunner

from anabranch.cli.main import cli
from anabranch.core.errors import AnabranchError
from support.processes import DEV_SETTINGS, START_S_MAX, Dev, dev, run

TOPIC: Final = "acme/shop/orders"
# Some of each kind, in an order in which each finds what it needs.
STEPS: Final = f"""
tenants create acme
tenants list
namespaces create acme/shop --bundles 2
permissions grant acme/shop ada produce consume
topics create {TOPIC} --segments 2
lookup {TOPIC}
topics stats {TOPIC}
topics produce {TOPIC} --key ada
topics peek {TOPIC} --from earliest
topics consume {TOPIC} --subscription billing --max 1 --timeout 60
topics split {TOPIC} 0
bundles list acme/shop
brokers
balance history
config list
log tail --no-follow
doctor --url URL
topics delete {TOPIC} --yes --force
"""
# These take the process's own input and signals, so they are run in one of their own.
APARTLY: Final = ("topics produce", "topics consume", "topics peek")
OF_KAFKA: Final = ("balance history", "log tail")


class Cluster(NamedTuple):
    """A secured one that runs, and what its shell exports."""

    dev: Dev
    folder: Path
    environment: Mapping[str, str]

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """In a process of its own, as the superuser."""
        return run(*words, **self.environment)


def exports(file: Path) -> dict[str, str]:
    lines = (shlex.split(line) for line in file.read_text().splitlines())
    pairs = (words[1].partition("=") for words in lines if words[:1] == ["export"])
    return {name: value for name, _, value in pairs}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("secured")
    with dev(folder, nodes=2, settings=DEV_SETTINGS, flags=("--secure",)) as running:
        running.await_line("ready: 2 nodes")
        yield Cluster(running, folder, exports(folder / "data" / "security" / "environment.sh"))


def invoked(line: str, environment: Mapping[str, str | None]) -> tuple[int, str]:
    """What a command ends in, and all that it said; for a process of its own, as commands leave
    their connections to its end.
    """
    if line.startswith(APARTLY):
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


@pytest.mark.long
def test_commands_ask_a_secured_cluster_as_the_environment_says(
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
            line = each.replace("URL", url)
            if not line.startswith(OF_KAFKA):
                ends(line, 1, "Show who you are", ANABRANCH_TOKEN_FILE=None)
                status = 1 if line.startswith("doctor") else 2
                ends(line, status, "not trusted", ANABRANCH_TLS_CA=None)
            ends(line, 0, "")
    assert not wrong, "\n".join(wrong)


@pytest.mark.long
@pytest.mark.lasting
@pytest.mark.spark
def test_the_log_of_a_secured_cluster_is_archived_and_audited(secured: Cluster) -> None:
    where = ("--archive-dir", str(secured.folder / "archive"))
    for words in (("archive", "--once", *where), ("archive", "--list"), ("audit", *where)):
        done = secured.run(*words)
        assert done.returncode == 0, done.stdout + done.stderr
