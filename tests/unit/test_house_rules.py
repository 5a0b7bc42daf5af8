"""Rules of this repository that no linter knows."""

import ast
import re
import subprocess
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from mutation.targets import ROOTS

_REPOSITORY = Path(__file__).parents[2]
_MODULE_LINES_MAX = 450  # a smell, not a law: a module ends where its noun ends
_FUNCTION_LINES_MAX = 70
_ENDS_THE_PROCESS = frozenset({"list_offsets", "describe_cluster", "list_consumer_group_offsets"})
# In pieces, so that this file does not name what it looks for.
_REGISTRY_HOSTS = re.compile(
    "|".join(
        re.escape(".".join(parts))
        for parts in (
            ("pypi", "org"),
            ("files", "pythonhosted", "org"),
            ("repo1", "maven", "org"),
            ("repo", "maven", "apache", "org"),
            ("search", "maven", "org"),
            ("registry", "npmjs", "org"),
            ("proxy", "golang", "org"),
            ("crates", "io"),
        )
    )
)


def _files() -> list[Path]:
    """What git tracks, or would track once added."""
    answer = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=_REPOSITORY,
        capture_output=True,
        check=False,
    )
    if answer.returncode != 0:
        pytest.skip("not a git checkout")
    paths = (_REPOSITORY / name for name in answer.stdout.decode().split("\0") if name)
    return [path for path in paths if path.is_file()]


def _modules() -> list[Path]:
    return [path for path in _files() if path.suffix == ".py"]


def _relative(path: Path) -> str:
    return str(path.relative_to(_REPOSITORY))


def test_no_root_turns_the_namespace_into_a_package() -> None:
    assert [root for root in ROOTS if (_REPOSITORY / root / "anabranch/__init__.py").exists()] == []


@pytest.mark.parametrize("root", ROOTS)
def test_a_root_holds_a_typed_package_of_its_name(root: str) -> None:
    package = _REPOSITORY / root / "anabranch" / root
    assert (package / "__init__.py").is_file()
    assert (package / "py.typed").is_file()


def test_nobody_imports_what_is_behind_another_root_s_underscore() -> None:
    found = [
        f"{_relative(path)}: {module}"
        for root in ROOTS
        for path in (_REPOSITORY / root).rglob("*.py")
        for module in re.findall(r"^\s*(?:from|import) (anabranch\.\S+)", path.read_text(), re.M)
        if "._" in module
        and not (_REPOSITORY / root / module.split("._")[0].replace(".", "/")).is_dir()
    ]
    assert found == []


def test_modules_are_short() -> None:
    long = {
        _relative(path): lines
        for path in _modules()
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > _MODULE_LINES_MAX
    }
    assert long == {}


def _sources() -> list[Path]:
    return [path for root in ROOTS for path in sorted((_REPOSITORY / root).rglob("*.py"))]


def _public_classes() -> Iterator[tuple[str, str]]:
    """The name of each class that is nobody's private one, and its module."""
    for path in _sources():
        for name in re.findall(r"^class ([^\W_]\w*)", path.read_text(encoding="utf-8"), re.M):
            yield name, _relative(path)


# Who shows a thing to others shows it under its own name: a name that is told there may be
# repeated, once in each of these places.
_FACES = {
    "client/anabranch/client/sync.py": "anabranch.client",  # the SDK without asyncio
    "client/anabranch/client/_errors.py": "anabranch.client",  # what nodes and the wire refuse
    "wire/anabranch/access/": "anabranch.access",  # what clients show, and nodes look at
    "client/anabranch/admin/": "anabranch.admin",  # JSON bodies and HTTP statuses, as received
    "broker/anabranch/broker/http/": "anabranch.admin",  # and as a node sends them
}


def test_a_class_name_stands_once() -> None:
    told = {module: set(import_module(module).__all__) for module in _FACES.values()}
    places: dict[tuple[str, str], list[str]] = {}
    for name, path in _public_classes():
        face = next((face for face in _FACES if path.startswith(face)), "")
        shown = face if face and name in told[_FACES[face]] else ""
        places.setdefault((shown, name), []).append(path)
    assert {name: paths for (_, name), paths in places.items() if len(paths) > 1} == {}


def _functions(path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            yield f"{_relative(path)}:{node.name}", node.end_lineno - node.lineno + 1


def test_functions_are_short() -> None:
    long = {
        name: lines
        for path in _modules()
        for name, lines in _functions(path)
        if lines > _FUNCTION_LINES_MAX
    }
    assert long == {}


def _asked(paths: list[Path], names: frozenset[str]) -> Iterator[str]:
    """Where an attribute of one of these names is. What does not name it is not parsed."""
    for path in paths:
        text = path.read_text(encoding="utf-8")
        if any(name in text for name in names):
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Attribute) and node.attr in names:
                    yield f"{_relative(path)}: {node.attr}"


def test_nobody_asks_librdkafka_what_can_end_the_process() -> None:
    """Each crashes, or fails an assertion, in librdkafka 2.16, by what Kafka happens to say when.

    `channel.kafka.offsets` tells what is asked instead of the first, `channel.kafka.brokers` of the
    second, and for the third a consumer that names the group asks what that has committed.
    """
    assert list(_asked(_modules(), _ENDS_THE_PROCESS)) == []


def test_records_are_deleted_in_one_place() -> None:
    """Which sees to it that librdkafka knows who leads: else that can end the process as well."""
    found = set(_asked(_sources(), frozenset({"delete_records"})))
    assert found == {"channel/anabranch/channel/kafka/deletion.py: delete_records"}


def _kept(tree: ast.AST, caught: frozenset[str] = frozenset()) -> Iterator[ast.Raise]:
    """Each `raise` of an error that a variable, an attribute or a list keeps."""
    for node in ast.iter_child_nodes(tree):
        name = {node.name} if isinstance(node, ast.ExceptHandler) and node.name else ()
        if isinstance(node, ast.Raise) and isinstance(
            node.exc, ast.Name | ast.Attribute | ast.Subscript
        ):
            last = ast.unparse(node.exc).rpartition(".")[2]
            if last not in caught and not last[0].isupper():
                yield node
        yield from _kept(node, caught.union(name))


def test_a_node_raises_no_error_that_it_keeps() -> None:
    """Such an error, its traceback and the frame that raised it are a circle: it holds the request
    until the collector finds it, and the traceback of one that is raised again grows. Make it where
    it is raised, `pop` it, or raise it `with_traceback(None)`. Python forgets what `as` names.
    """
    found = [
        f"{_relative(path)}:{node.lineno}: {ast.unparse(node)}"
        for path in _sources()
        if re.match(r"(core|channel|wire|projections|broker|proxy)/(?!.*/cli/)", _relative(path))
        for node in _kept(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert found == []


def test_no_file_names_the_host_of_a_package_registry() -> None:
    named = []
    for path in _files():
        text = path.read_bytes().decode("utf-8", errors="ignore")
        named += [f"{_relative(path)}: {found[0]}" for found in _REGISTRY_HOSTS.finditer(text)]
    assert named == []


def test_requirement_files_hold_hashes_and_no_address() -> None:
    for path in (_REPOSITORY / "requirements").glob("*.txt"):
        text = path.read_text(encoding="utf-8")
        assert "://" not in text, path.name
        pinned = re.findall(r"^[A-Za-z0-9].*==.*\\$", text, re.MULTILINE)
        named = re.findall(r"^[A-Za-z0-9]", text, re.MULTILINE)
        assert len(pinned) == len(named), f"{path.name} has a line without version or hash"


_IMPORT = re.compile(r"^ *from (anabranch\.core[\w.]*) import (\([^)]*\)|.*)", re.M)


def test_code_outside_of_core_comes_in_by_its_doors() -> None:
    """The `__init__` of each package of core names the modules that others may import."""
    core = _REPOSITORY / "core" / "anabranch" / "core"
    doors = {
        package.parent.name: set(import_module(f"anabranch.core.{package.parent.name}").__all__)
        for package in core.glob("*/__init__.py")
    }
    beside = []
    for path in _modules():
        if _relative(path).startswith(("core/", "tests/")):
            continue
        for module, said in _IMPORT.findall(path.read_text(encoding="utf-8")):
            for name in re.findall(r"(\w+)(?: as \w+)?", re.sub(r"#.*", "", said)):
                place = f"{module}.{name}".split(".")[2:4]
                if place[0] in doors and (len(place) < 2 or place[1] not in doors[place[0]]):
                    beside.append(f"{_relative(path)}: {place}")
    assert beside == []


def test_tests_lie_in_folders_of_the_packages_that_they_test() -> None:
    packages = {"docker"}
    for path in _modules():
        root, *parts = path.relative_to(_REPOSITORY).parent.parts
        if root in ROOTS and parts[:1] == ["anabranch"]:
            packages |= {"/".join(part.lstrip("_") for part in parts[1:])}
    kinds = (_REPOSITORY / "tests" / "unit", _REPOSITORY / "tests" / "property")
    astray = [
        _relative(path)
        for kind in kinds
        for path in kind.rglob("test_*.py")
        if path.parent != kind and path.parent.relative_to(kind).as_posix() not in packages
    ]
    assert astray == []
    whole = {"english", "error_messages", "house_rules", "leftovers", "mutation_results", "pages"}
    whole |= {"owned_tasks", "planted_bugs", "steady_loop"}
    flat = {path.stem.removeprefix("test_") for kind in kinds for path in kind.glob("test_*.py")}
    assert flat == whole, "what looks at no package alone is named here; all else has a folder"


def test_what_runs_a_kafka_or_a_spark_lies_where_make_test_looks_for_it() -> None:
    marked = re.compile(r"\bmark\.(?:integration|spark)\b")
    tests = [path for path in _modules() if path.name.startswith("test_")]
    folder = _REPOSITORY / "tests" / "integration"  # its conftest.py marks all that is there
    assert [
        _relative(p) for p in tests if p.parent != folder and marked.search(p.read_text())
    ] == []


def test_long_tests_lie_where_make_test_long_looks_for_them() -> None:
    large = {"simulation", "faults", "integration"}
    marked = re.compile(r"\bmark\.long\b")
    assert [
        _relative(path)
        for path in _modules()
        if path.name.startswith("test_") and path.parent.name not in large
        if marked.search(path.read_text())
    ] == []


# Of a page: a path in backticks that begins with a folder of this repository.
_PATH = re.compile(rf"`((?:{'|'.join(ROOTS)}|tests|docs|bench)/[\w./*-]*)`")


def _places(path: str) -> Iterator[Path]:
    """What a page's path may mean: `core/ring.py` is short for `core/anabranch/core/ring.py`."""
    pattern = re.sub(r"\bNOUN\b", "*", path).rstrip("/")
    root, _, rest = pattern.partition("/")
    yield from _REPOSITORY.glob(pattern)
    yield from _REPOSITORY.glob(f"{root}/anabranch/{root}/{rest}" if rest else root)


def test_pages_name_paths_that_are_there() -> None:
    gone = [
        f"{_relative(page)}: {path}"
        for page in _files()
        if page.suffix == ".md"
        for path in _PATH.findall(page.read_text(encoding="utf-8"))
        if next(_places(path), None) is None
    ]
    assert gone == []


def test_the_glossary_has_each_word_once_and_says_where_it_lives() -> None:
    page = (_REPOSITORY / "docs" / "glossary.md").read_text(encoding="utf-8")
    rows = [row.strip("|").split(" | ") for row in page.splitlines() if row.startswith("| ")][1:]
    assert [row for row in rows[1:] if len(row) != 3 or not _PATH.search(row[2])] == []
    words = [word.strip() for row in rows[1:] for word in row[0].split(",")]
    assert len(words) == len(set(words))
    # Core is sorted by the glossary's nouns: each module of it is some word's place.
    named = {place for row in rows[1:] for path in _PATH.findall(row[2]) for place in _places(path)}
    core = _REPOSITORY / "core" / "anabranch" / "core"
    modules = {path for path in core.rglob("*.py") if path.name not in ("__init__.py", "errors.py")}
    assert {_relative(p) for p in modules - named if p.parent not in named} == set()
