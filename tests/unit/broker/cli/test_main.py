"""The command line without a cluster."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from anabranch.broker.cli import main as main_module
from anabranch.broker.cli.cluster.log import shown_from
from anabranch.broker.cli.main import cli
from support.answering import Answer, node
from support.nobody import nobody
from support.waiting import WAIT_S

COMMANDS = (
    [
        *("dev", "node", "demo", "lookup", "tenants", "namespaces", "bundles", "brokers"),
        *("topics", "kafka", "archive", "audit", "settings", "doctor", "proxy", "dev-role"),
    ],
    ["log", "tail"],
)


@pytest.mark.parametrize("command", [*([name] for name in COMMANDS[0]), COMMANDS[1]])
def test_every_command_explains_itself_with_an_example(command: list[str]) -> None:
    found = CliRunner().invoke(cli, [*command, "--help"])
    assert found.exit_code == 0, found.output
    assert "Example: anabranch " + " ".join(command) in " ".join(found.output.split())


def test_the_help_lists_every_command_and_the_exit_statuses() -> None:
    found = CliRunner().invoke(cli, ["--help"])
    for name in (*COMMANDS[0], "log"):
        assert f"\n  {name} " in found.output
    assert "Exit status:" in found.output


def every(
    command: click.Command, path: tuple[str, ...] = ()
) -> Iterator[tuple[str, click.Command]]:
    yield " ".join(path), command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from every(found, (*path, name))


EVERY = dict(every(cli))


@pytest.mark.parametrize("name", EVERY)
def test_every_help_is_in_sentences_and_has_an_example(name: str) -> None:
    command = EVERY[name]
    assert (command.help or "").partition("\n")[0].endswith((".", ":"))
    assert "Example" in (command.epilog or "")
    assert f"anabranch {name}".rstrip() in (command.epilog or "")
    wrong = {
        option.name: option.help
        for option in command.params
        if isinstance(option, click.Option) and not option.hidden
        if not re.fullmatch(r"[A-Z`].*[.](  \[.*\])?", option.help or "")
    }
    assert wrong == {}


def test_the_page_of_commands_names_every_one() -> None:
    page = (Path(__file__).parents[4] / "docs" / "commands.md").read_text("utf-8")
    table = page[page.index("| command | what it does |") : page.index("`pip install anabranch`")]
    rows = {line.split("`")[1].split()[1]: line for line in table.splitlines() if "`" in line}
    missing = []
    for name in filter(None, EVERY):
        words = name.split()
        row = rows.get(words[0], "")
        if not row or any(word not in row for word in words):
            missing.append(name)
    assert missing == []


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "anabranch.broker.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["--version"], 0, "anabranch "),
        (["nope"], 2, "No such command 'nope'"),
        (["topic", "list"], 2, "No such command 'topic'. Did you mean 'topics'"),
        (["settings", "lease", "nope"], 1, "no setting has 'lease' and 'nope' in its name"),
        (["lookup", "orders"], 2, "not of the form tenant/namespace/topic"),
        (["bundles", "a/b/c"], 2, "not of the form tenant/namespace"),
        (["node", "--set", "leaseMillis"], 2, "not of the form NAME=VALUE"),
        (["node", "--config", "/nowhere.toml"], 2, "/nowhere.toml cannot be read"),
        (["doctor", "--set", "nope=1"], 1, "nope (flag) is no setting"),
        (["proxy"], 2, "no node is named"),
        (["proxy", "--nodes", "node:8080"], 2, "write http://host:port"),
        (["proxy", "--set", "bootstrapServers=k:9092"], 2, "bootstrapServers (flag) is no setting"),
        (["archive", "--archive-dir", "a", "--interval", "inf"], 2, "inf is no finite number"),
        (["archive", "--archive-dir", "a", "--interval", "nan"], 2, "nan is no finite number"),
        (["audit", "--stuck-after", "nan"], 2, "nan is no finite number"),
        (["audit", "--orphaned-after", "inf"], 2, "inf is no finite number"),
        (["audit", "--orphaned-after", "-1"], 2, "-1.0 is not in the range x>=0"),
        (["audit", "--html", "/nowhere/a.html"], 2, "there is no folder /nowhere: make it"),
        (["audit", "--json", "/nowhere/a.json"], 2, "Invalid value for '--json': there is no"),
        (["backtest", "balance", "--json", "/"], 2, "/ is a folder: name a file"),
        (["demo", "--duration", "nan"], 2, "nan is no finite number"),
    ],
)
def test_what_cannot_be_done_is_said_in_words_with_its_status(
    arguments: list[str], status: int, said: str
) -> None:
    found = run(*arguments)
    assert found.returncode == status, found.stderr
    assert said in found.stdout + found.stderr
    assert "Traceback" not in found.stderr


def test_where_no_node_answers_the_remedy_is_named() -> None:
    with nobody() as address:
        url = f"http://{address}"
        found = run("brokers", "--url", url)
    assert found.returncode == 2
    assert f"no node answers at {url}" in found.stderr
    assert "--url" in found.stderr


def test_where_no_port_was_named_it_is_said_which_was_asked() -> None:
    found = run("brokers", "--url", "127.1.2.3")
    assert found.returncode == 2
    assert "without a port that is 80, so name the node's (webServicePort, 8080)" in found.stderr


def test_the_doctor_knows_the_port_of_a_node_that_runs() -> None:
    version: Answer = (200, {}, "9.9.9")
    with node(lambda _verb, _path: version) as url:
        port = url.rpartition(":")[2]
        found = run("doctor", "--http-port", port)
    assert found.returncode == 1
    assert f"port {port} of 0.0.0.0 cannot be listened on" in found.stdout
    assert f"`anabranch doctor --url {url}` checks what its clients need" in found.stdout


def test_a_report_that_may_not_be_written_is_refused_before_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.access", lambda asked, mode: asked != tmp_path)  # root always may
    file = tmp_path / "a.html"
    found = CliRunner().invoke(cli, ["audit", "--html", str(file)])
    assert found.exit_code == 2
    assert f"{file} cannot be written: name another file" in found.stderr


def test_a_shell_completes_commands_and_options() -> None:
    def completed(words: str) -> list[str]:
        environment = {
            "_ANABRANCH_COMPLETE": "bash_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(words.count(" ")),
        }
        with pytest.MonkeyPatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value)
            found = CliRunner().invoke(cli, [], prog_name="anabranch")
        return [line.partition(",")[2] for line in found.output.splitlines()]

    assert completed("anabranch to") == ["topics", "token"]
    assert completed("anabranch topics s") == ["show", "stats", "split", "subscriptions"]
    assert completed("anabranch brokers --w") == ["--watch"]


@pytest.mark.parametrize(
    ("module", "more"),
    [
        ("anabranch.broker.cli.main", ("anabranch.devkit", "anabranch.jars")),
        ("anabranch.broker.cli.node.run", ("anabranch.devkit", "anabranch.jars")),
        ("anabranch.devkit.dev", ()),
    ],
)
def test_neither_the_help_nor_a_node_carries_spark_or_tools(
    module: str, more: tuple[str, ...]
) -> None:
    unwanted = ["pyspark", "pandas", "pyarrow", "anabranch.spark_replay", *more]
    code = (
        f"import sys, {module}, anabranch.broker.node, anabranch.broker.http.app;"
        f"sys.exit(any(name in sys.modules for name in {unwanted}))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=WAIT_S).returncode == 0


def test_a_fault_is_told_in_a_line_and_its_stack_kept_in_a_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(**_: object) -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(main_module, "cli", broken)
    with pytest.raises(SystemExit) as ended:
        main_module.main()
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("anabranch: a fault, ZeroDivisionError: by zero; please report it")
    kept = Path(said.strip().rpartition(" ")[2])
    assert "Traceback" in kept.read_text()
    kept.unlink()


@pytest.mark.parametrize(
    ("start", "first", "judged", "begin", "said"),
    [
        (None, 0, 0, 0, []),
        ("3", 0, 0, 3, []),
        (None, 5, 5, 5, ["begins at offset 5: what came before was trimmed"]),
        ("4", 5, 5, 5, ["begins at offset 5"]),
        ("5", 5, 5, 5, []),
        (None, 5, 8, 5, ["begins at offset 5", "offsets 5 to 7 are shown without verdicts"]),
        ("7", 5, 8, 7, ["offsets 7 to 7 are shown without verdicts"]),
        ("8", 5, 8, 8, []),
        ("end", 5, 8, 9, []),
        ("9", 0, 0, 9, []),
        ("10", 0, 0, 10, ["--from 10 lies behind the end of the log, which is 9"]),
    ],
)
def test_log_tail_says_what_it_cannot_show(
    start: str | None, first: int, judged: int, begin: int, said: list[str]
) -> None:
    found, notes = shown_from(start, first, judged, 9)
    assert found == begin
    assert len(notes) == len(said)
    assert all(words in note for words, note in zip(said, notes, strict=True))
