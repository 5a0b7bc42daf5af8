"""What `pip install anabranch` brings, without extras: the SDK, administration, their commands.

The wheel is built, and unpacked as pip does it. Beside it stand the packages that a file of
requirements names, and nothing else that is installed here.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from importlib.metadata import Distribution, PackageNotFoundError
from pathlib import Path

import pytest

from support.topic_cluster import TopicCluster
from support.waiting import WAIT_S

REPOSITORY = Path(__file__).parents[2]
INSTALLED = Path(sysconfig.get_path("purelib"))
OF_A_NODE = (
    "fastavro",
    "starlette",
    "rocksdict",
    "uvicorn",
    "transitions",
    "structlog",
)


class Install:
    """A folder with the wheel and the packages of a file of requirements, and no others."""

    def __init__(self, folder: Path, wheel: Path, requirements: str) -> None:
        self.folder = folder
        pip = ("-m", "pip", "--disable-pip-version-check", "--no-input", "install", "--quiet")
        where = ("--no-deps", "--no-index", "--target", str(folder))
        subprocess.run([sys.executable, *pip, *where, str(wheel)], check=True)
        for name in named(requirements):
            for top in tops(name):
                (folder / top).symlink_to(INSTALLED / top)

    def python(self, *arguments: str, said: str = "") -> subprocess.CompletedProcess[str]:
        """Runs Python with this folder and the standard library alone: -S leaves out the rest."""
        return subprocess.run(
            [sys.executable, "-S", *arguments],
            input=said,
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(self.folder)},
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )

    def run(self, *arguments: str, said: str = "") -> subprocess.CompletedProcess[str]:
        """One `anabranch` command, by the script that pip has made."""
        return self.python(str(self.folder / "bin" / "anabranch"), *arguments, said=said)


def named(requirements: str) -> list[str]:
    text = (REPOSITORY / "requirements" / requirements).read_text(encoding="utf-8")
    return re.findall(r"^([A-Za-z0-9._-]+)==", text, re.MULTILINE)


def tops(name: str) -> set[str]:
    """The folders and modules of an installed distribution; none if this machine needs it not."""
    try:
        files = Distribution.from_name(name).files or []
    except PackageNotFoundError:
        return set()
    return {file.parts[0] for file in files} - {"..", "__pycache__"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=REPOSITORY, capture_output=True, check=True)
    return next(folder.glob("anabranch-*.whl"))


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Install:
    return Install(tmp_path_factory.mktemp("bare"), wheel, "sdk.txt")


@pytest.fixture(scope="module")
def with_node(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Install:
    return Install(tmp_path_factory.mktemp("node"), wheel, "node.txt")


def test_the_sdk_and_administration_import_and_nothing_of_a_node_is_there(bare: Install) -> None:
    code = (
        "import importlib.util, anabranch.client, anabranch.client.sync, anabranch.admin;"
        "from anabranch.client import Client; from anabranch.admin import Admin;"
        "print(Client.__name__, anabranch.client.sync.Client.__name__, Admin.__name__,"
        f"anabranch.client.__file__, [n for n in {OF_A_NODE} if importlib.util.find_spec(n)])"
    )
    found = bare.python("-W", "error", "-c", code)
    place = bare.folder / "anabranch/client/__init__.py"
    assert (found.stdout, found.stderr) == (f"Client Client Admin {place} []\n", "")


def test_the_broker_for_faststream_names_its_extra(bare: Install) -> None:
    found = bare.python("-c", "import anabranch.client.faststream")
    assert found.stderr.endswith('needs FastStream: pip install "anabranch[faststream]"\n')


def test_help_lists_every_command_and_those_of_the_sdk_explain_themselves(bare: Install) -> None:
    found = bare.run("--help")
    assert (found.returncode, found.stderr) == (0, "")
    assert all(f"\n  {name} " in found.stdout for name in ("dev", "node", "topics", "audit"))
    assert bare.run("--version").stdout.startswith("anabranch ")
    for command in (
        *("lookup", "tenants", "namespaces", "policy", "topics peek", "topics subscriptions"),
        *("balance", "balance show"),
    ):
        found = bare.run(*command.split(), "--help")
        assert (found.returncode, found.stderr) == (0, ""), command


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (["node", "--bootstrap-servers", "127.0.0.1:1"], "node"),
        (["log", "tail"], "node"),
        (["dev"], "spark"),
        (["audit"], "spark"),
    ],
)
def test_a_command_without_its_extra_names_the_remedy(
    bare: Install, arguments: list[str], extra: str
) -> None:
    found = bare.run(*arguments)
    assert (found.returncode, found.stdout) == (2, "")
    assert len(found.stderr.splitlines()) == 1
    assert found.stderr.startswith(f"anabranch: `{arguments[0]}` needs ")
    assert found.stderr.endswith(f'pip install "anabranch[{extra}]"\n')


def test_the_extra_of_a_node_brings_a_node_and_names_the_one_of_spark(with_node: Install) -> None:
    code = "import anabranch.broker.node.node, anabranch.broker.http.app, anabranch.cli.node.run"
    found = with_node.python("-c", code)
    assert (found.returncode, found.stderr) == (0, "")
    assert with_node.run("node", "--help").returncode == 0
    found = with_node.run("audit", "--bootstrap-servers", "127.0.0.1:1")
    assert (found.returncode, found.stdout) == (2, "")
    assert found.stderr.endswith('pip install "anabranch[spark]"\n')
    assert found.stderr.endswith('pip install "anabranch[spark]"\n')


def test_its_commands_administer_produce_and_consume(bare: Install, cluster: TopicCluster) -> None:
    name = "public/default/bare"
    url = ("--url", cluster.nodes[0].url)
    made = bare.run("topics", "create", name, "--segments", "2", *url)
    assert made.stdout == f"topic://{name} is created, with 2 segments\n", made.stderr
    sent = bare.run("topics", "produce", name, *url, said="ada\tone\nada\ttwo\n")
    assert sent.returncode == 0, sent.stderr
    got = bare.run("topics", "consume", name, "--subscription", "s", "--max", "2", *url)
    assert [line.split("\t")[1:] for line in got.stdout.splitlines()] == [
        ["ada", "one"],
        ["ada", "two"],
    ], got.stderr
    shown = bare.run("topics", "show", name, *url)
    assert (shown.returncode, shown.stderr) == (0, "")
