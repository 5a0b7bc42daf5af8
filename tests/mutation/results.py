"""What became of the mutants, as mutmut tells it, and a table that says so."""

from __future__ import annotations

import re
import subprocess
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mutation.targets import SHARE_MIN

_LINE: Final = re.compile(r"^\s*(?P<name>anabranch\.\S+): (?P<status>.+)$")
_NOTICED: Final = frozenset({"killed", "caught by type check", "timeout", "segfault", "suspicious"})
_NOT_RUN: Final = "not checked"
_IGNORED: Final = frozenset({"skipped", _NOT_RUN})


@dataclass(frozen=True, slots=True)
class Mutant:
    """`name` is mutmut's, which `mutmut show` takes; `status` its word for what became of it."""

    name: str
    status: str

    @property
    def module(self) -> str:
        """As `core.leases`."""
        return self.name.split(".x", 1)[0].removeprefix("anabranch.")

    @property
    def function(self) -> str:
        """As `core.leases.Lease.renew`."""
        mangled = self.name.removeprefix(f"anabranch.{self.module}.").rpartition("__mutmut_")[0]
        return f"{self.module}.{mangled.removeprefix('x').strip('_ǁ').replace('ǁ', '.')}"


@dataclass(frozen=True, slots=True)
class Explained:
    """Why a survivor is none to worry about: what was changed, and the reason.

    With a function, its change to the letter; without, each change that the expression matches.
    """

    change: str
    reason: str
    function: str = ""

    def covers(self, function: str, change: str) -> bool:
        if self.function:
            return (self.function, self.change) == (function, change)
        return re.fullmatch(self.change, change) is not None


def read(tree: Path, mutmut: Path) -> list[Mutant]:
    """Asks mutmut for all results in a tree."""
    told = subprocess.run(
        [mutmut, "results", "--all", "true"], cwd=tree, check=True, capture_output=True, text=True
    ).stdout
    found = (_LINE.match(line) for line in told.splitlines())
    return [Mutant(match["name"], match["status"]) for match in found if match]


def change(tree: Path, mutmut: Path, mutant: Mutant) -> str:
    """The changed lines of a mutant: `before -> after`."""
    told = subprocess.run(
        [mutmut, "show", mutant.name], cwd=tree, check=True, capture_output=True, text=True
    ).stdout
    sides: dict[str, list[str]] = {"-": [], "+": []}
    for line in told.splitlines():
        if line[:1] in sides and not line.startswith(("---", "+++")):
            sides[line[0]].append(line[1:].strip())
    return f"{' '.join(sides['-'])} -> {' '.join(sides['+'])}"


def explanations(page: Path) -> list[Explained]:
    """What `survivors.toml` says, single survivors before patterns."""
    told = tomllib.loads(page.read_text())
    return [Explained(**each) for each in (*told.get("survivor", []), *told.get("pattern", []))]


def score(mutants: Sequence[Mutant]) -> tuple[int, int]:
    """How many were noticed, and of how many that were run."""
    counted = [each for each in mutants if each.status not in _IGNORED]
    return sum(each.status in _NOTICED for each in counted), len(counted)


def survivors(mutants: Sequence[Mutant]) -> list[Mutant]:
    """Those that no test noticed."""
    return [each for each in mutants if each.status not in _NOTICED | _IGNORED]


def table(by_target: Mapping[str, Sequence[Mutant]]) -> str:
    """A Markdown table with a line for each target; the share is of the mutants that were run."""
    lines = ["| target | mutants | run | noticed | share |", "| --- | --- | --- | --- | --- |"]
    for target, mutants in by_target.items():
        noticed, total = score(mutants)
        share = noticed / total if total else 1.0
        planted = total + sum(each.status == _NOT_RUN for each in mutants)
        mark = "" if share >= SHARE_MIN else f", **below {SHARE_MIN:.0%}**"
        lines.append(f"| {target} | {planted:,} | {total:,} | {noticed:,} | {share:.1%}{mark} |")
    return "\n".join(lines)
