"""The command line without a cluster."""

import re
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from anabranch.cli import main as main_module
from anabranch.cli.cluster.log import shown_from
from anabranch.cli.main import cli
from anabranch.cli.shared.numbers import Finite
from support.answering import Answer, node
from support.commands import every, run_here
from support.processes import run_python

Ended = Callable[[list[str]], tuple[int, str]]
EVERY = dict(every(cli))


def test_every_help_is_in_sentences_and_has_an_example() -> None:
    wrong = []
    for name, command in EVERY.items():
        example = f"anabranch {name}".rstrip()
        if not (command.help or "").partition("\n")[0].endswith((".", ":")):
            wrong.append(name)
        if "Example" not in (command.epilog or "") or example not in (command.epilog or ""):
            wrong.append(f"{name} has no example")
        wrong += [
            f"{name} {option.name}: {option.help}"
            for option in command.params
            if isinstance(option, click.Option) and not option.hidden
            if not re.fullmatch(r"[A-Z`].*[.](  \[.*\])?", option.help or "")
        ]
    assert wrong == []


def test_the_help_lists_the_commands_and_the_exit_statuses() -> None:
    found = CliRunner().invoke(cli, ["--help"])
    assert "\n  topics " in found.output
    assert "Exit status:" in found.output


def test_no_number_that_a_command_takes_may_be_infinite() -> None:
    loose = {
        f"{name} {each.name}"
        for name, command in EVERY.items()
        for each in command.params
        if isinstance(each.type, click.types.FloatParamType)
        if not isinstance(each.type, Finite)
    }
    assert loose == set()


def test_the_page_of_commands_names_every_one() -> None:
    page = (Path(__file__).parents[3] / "docs" / "commands.md").read_text("utf-8")
    table = page[page.index("| command | what it does |") : page.index("`pip install anabranch`")]
    rows = {line.split("`")[1].split()[1]: line for line in table.splitlines() if "`" in line}
    assert rows.keys() == {name.split()[0] for name in filter(None, EVERY)}
    missing = []
    for name in filter(None, EVERY):
        words = name.split()
        row = rows.get(words[0], "")
        if not row or any(word not in row for word in words):
            missing.append(name)
    assert missing == []


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["--version"], 0, "anabranch "),
        (["topic", "list"], 2, "No such command 'topic'. Did you mean 'topics'"),
        (["settings", "lease", "nope"], 1, "no setting has 'lease' and 'nope' in its name"),
        (["node", "--config", "/nowhere.toml"], 2, "/nowhere.toml cannot be read"),
        (["doctor", "--set", "nope=1"], 1, "nope (flag) is no setting"),
        (["tenants", "create", "a/b"], 2, "tenant name 'a/b' is not valid"),
        (["namespaces", "create", "a/b", "--bundles", "0"], 2, "0 is not in the range x>=1"),
        (["policy", "set", "a/b/c", "maxSegment=3"], 2, "maxSegments"),
        (["policy", "set", "a/b/c", "splitCooldownSeconds=nan"], 2, "neither a number nor"),
        (["proxy"], 2, "no node is named"),
        (["audit", "--stuck-after", "nan"], 2, "nan is no finite number"),
        (["audit", "--html", "/nowhere/a.html"], 2, "there is no folder /nowhere: make it"),
        (["backtest", "--mean-rate", "0"], 2, "--mean-rate"),
        (["backtest", "--json", "/"], 2, "/ is a folder: name a file"),
    ],
)
def test_what_cannot_be_done_is_said_in_words_with_its_status(
    arguments: list[str], status: int, said: str, ended: Ended
) -> None:
    found, told = ended(arguments)
    assert (found, said in told) == (status, True), told
    assert "Traceback" not in told


def test_where_no_port_was_named_it_is_said_which_was_asked(ended: Ended) -> None:
    status, told = ended(["brokers", "--url", "127.1.2.3"])
    assert status == 2
    assert "without a port that is 80, so name the node's (webServicePort, 8080)" in told


def test_the_doctor_knows_the_port_of_a_node_that_runs() -> None:
    version: Answer = (200, {}, "9.9.9")
    with node(lambda _verb, _path: version) as url:
        port = url.rpartition(":")[2]
        found = run_here("doctor", "--http-port", port)
    assert found.returncode == 1
    assert f"port {port} of 0.0.0.0 cannot be listened on" in found.stdout
    assert f"`anabranch doctor --url {url}` checks what its clients need" in found.stdout


def test_the_doctor_makes_no_folders(tmp_path: Path) -> None:
    CliRunner().invoke(cli, ["doctor", "--data-dir", str(tmp_path / "data")])
    assert list(tmp_path.iterdir()) == []


def test_a_report_with_no_place_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert completed("anabranch topics s") == ["survey", "show", "stats", "split", "subscriptions"]
    assert completed("anabranch brokers --j") == ["--json"]


@pytest.mark.parametrize(
    ("module", "more"),
    [
        ("anabranch.cli.main", ("anabranch.devkit", "anabranch.jars")),
        ("anabranch.cli.node.run", ("anabranch.devkit", "anabranch.jars")),
        ("anabranch.cli.topics.consume", ("anabranch.devkit", "anabranch.jars")),
        ("anabranch.devkit.dev", ()),
    ],
)
def test_neither_help_nor_node_carries_spark_or_tools(module: str, more: tuple[str, ...]) -> None:
    unwanted = ["pyspark", "pandas", "pyarrow", "anabranch.spark_replay", *more]
    code = (
        f"import sys, {module}, anabranch.broker.node.node, anabranch.broker.http.app;"
        f"sys.exit(any(name in sys.modules for name in {unwanted}))"
    )
    assert run_python(code).returncode == 0


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
        ("4", 5, 5, 5, ["begins at offset 5"]),
        (None, 5, 8, 5, ["begins at offset 5", "offsets 5 to 7 are shown without verdicts"]),
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
