"""Builds the tree in which mutants live: one package made of all roots, and the tests beside it.

mutmut names a mutant after the path of its module, so the portions of the namespace, each in a root
of its own, are put together as the wheel does.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable
from itertools import takewhile
from pathlib import Path
from typing import Final

from mutation.targets import ROOTS, Target

# What is said to people, in messages and log events, no test holds to the letter: a string with two
# words in it. A raise is its message; that it is reached at all, the condition before it tells.
_PROSE: Final = r"[ (=f\[]\"[^\"]*[a-z}>],? [a-z{<][^\"]*\""
_FOR_PEOPLE: Final = (r"\b_log\.", r"raise \w+Error\(", _PROSE)
# A mutant that a strict type checker refuses is noticed, as `make test` runs one.
_TYPES: Final = (sys.executable, "-m", "mypy", "--output", "json", "--no-error-summary")
# A property tries the same few examples for each mutant, so that chance kills none.
_SAME_EACH_TIME: Final = ("-p", "no:cacheprovider", "--first-seed=1", "--budget=0")
# They look at the repository as it is, not as it is mutated.
_NOT_OF_THE_CODE: Final = ("test_docs.py", "test_house_rules.py")


def build(project: Path, tree: Path, target: Target) -> None:
    """Makes `tree` anew from the sources of `project`.

    Nothing of an earlier run is left: mutmut would keep its survivors, whatever tests came since.
    """
    shutil.rmtree(tree, ignore_errors=True)
    package = tree / "src" / "anabranch"
    for root in ROOTS:
        shutil.copytree(
            project / root / "anabranch", package, ignore=_no_caches, dirs_exist_ok=True
        )
    shutil.copytree(project / "tests", tree / "tests", ignore=_no_caches)
    (tree / "pyproject.toml").write_text(_configuration(target, _tests(tree / "tests", target)))


_no_caches = shutil.ignore_patterns("__pycache__", ".hypothesis")


def _tests(tests: Path, target: Target) -> list[str]:
    found = sorted({path for pattern in target.tests for path in tests.glob(pattern)})
    return [f"tests/{p.relative_to(tests)}" for p in found if p.name not in _NOT_OF_THE_CODE]


def packages(target: Target) -> list[str]:
    """The packages of its modules, for the type checker: it takes no glob, and no package twice."""
    fixed = (
        takewhile(lambda part: "*" not in part, Path(each).parent.parts) for each in target.modules
    )
    found = {Path("src/anabranch", *parts) for parts in fixed}
    return sorted(str(each) for each in found if found.isdisjoint(each.parents))


def _configuration(target: Target, tests: Iterable[str]) -> str:
    def listed(values: Iterable[str]) -> str:
        return json.dumps(list(values))  # a JSON array of strings is a TOML one

    return "\n".join(
        (
            "[tool.mutmut]",
            'source_paths = ["src/anabranch"]',
            f"only_mutate = {listed(f'src/anabranch/{each}' for each in target.modules)}",
            f"do_not_mutate = {listed(f'src/anabranch/{each}' for each in target.but)}",
            f"do_not_mutate_patterns = {listed(_FOR_PEOPLE)}",
            f"pytest_add_cli_args_test_selection = {listed(tests)}",
            f"pytest_add_cli_args = {listed(_SAME_EACH_TIME)}",
            "use_git_change_detection = false",
            f"type_check_command = {listed([*_TYPES, *packages(target)])}",
            "[tool.pytest.ini_options]",
            'pythonpath = ["tests"]',
            'addopts = ["--import-mode=importlib"]',
            "consider_namespace_packages = true",
            "[tool.mypy]",
            "strict = true",
            "warn_unused_ignores = false",
            "ignore_missing_imports = true",
            'follow_imports = "silent"',
            'mypy_path = "$MYPY_CONFIG_FILE_DIR/src"',
            "namespace_packages = true",
            "explicit_package_bases = true",
            "[[tool.mypy.overrides]]",
            'module = ["confluent_kafka.*"]',
            "implicit_reexport = true",
            "",
        )
    )
