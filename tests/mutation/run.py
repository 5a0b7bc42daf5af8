"""Plants bugs one by one and sees which of them no test notices: `make mutants`."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from mutation import results, tree
from mutation.results import Mutant
from mutation.targets import SHARE_MIN, TARGETS, Target

PROJECT: Final = Path(__file__).resolve().parents[2]
_TREES: Final = PROJECT / ".mutants"
_EXPLAINED: Final = Path(__file__).with_name("survivors.toml")
_MUTMUT: Final = Path(sys.executable).with_name("mutmut")


def main() -> int:
    """Exit status 0 when every target is noticed enough and every survivor is explained."""
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="all when none is given")
    parser.add_argument("--only", metavar="PATTERN", help="as anabranch.core.sessions.lease*")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--results", action="store_true", help="run nothing, tell the last results")
    given = parser.parse_args()
    known = {target.name: target for target in TARGETS}
    unknown = [name for name in given.targets if name not in known]
    if unknown:
        parser.error(f"no target is called {', '.join(unknown)}; there are {', '.join(known)}")
    found: dict[str, list[Mutant]] = {}
    for name in given.targets or known:
        if not given.results:
            _mutate(known[name], given.workers, given.only)
        found[name] = results.read(_TREES / name, _MUTMUT)
    sys.stdout.write(f"{results.table(found)}\n")
    unexplained = _tell(found)
    scores = [results.score(mutants) for mutants in found.values()]
    enough = all(noticed >= SHARE_MIN * total for noticed, total in scores)
    return 0 if enough and not unexplained else 1


def _mutate(target: Target, workers: int, only: str | None) -> None:
    place = _TREES / target.name
    tree.build(PROJECT, place, target)
    patterns = [only] if only else []
    command = [str(_MUTMUT), "run", "--max-children", str(workers), *patterns]
    subprocess.run(command, cwd=place, check=True)


def _tell(found: Mapping[str, Sequence[Mutant]]) -> int:
    """Prints the survivors; returns how many of them nobody has explained."""
    explained = results.explanations(_EXPLAINED)
    unexplained = 0
    for target, mutants in found.items():
        for mutant in results.survivors(mutants):
            change = results.change(_TREES / target, _MUTMUT, mutant)
            reasons = (each.reason for each in explained if each.covers(mutant.function, change))
            told = next(reasons, "")
            unexplained += not told
            sys.stdout.write(f"{mutant.function}\n    {change}\n    {told or '(not explained)'}\n")
    sys.stdout.write(f"{unexplained} survivors are not explained in {_EXPLAINED.name}\n")
    return unexplained


if __name__ == "__main__":
    sys.exit(main())
