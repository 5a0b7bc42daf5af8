"""Measures figures, all or those named: PYTHONPATH=tests python -m bench [--quick] [NAME ...]."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

from anabranch.core.errors import AnabranchError
from bench.figure import Figure
from bench.place import Place
from bench.registry import FIGURES
from bench.report import Row, save, show, table


def main() -> int:
    """Exit status 0 when all could be measured, whether or not the goals are met."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="figures; all when none is given")
    parser.add_argument("--list", action="store_true", help="name the figures and end")
    parser.add_argument(
        "--brokers",
        type=int,
        choices=(1, 3),
        default=3,
        help="of Kafka; with 3, three copies of all",
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, to try it out")
    given = parser.parse_args()
    known = {figure.name: figure for figure in FIGURES}
    if given.list:
        for figure in FIGURES:
            print(f"{figure.name:16} {figure.what}; goal: {figure.goal}")
        return 0
    unknown = [name for name in given.names if name not in known]
    if unknown:
        parser.error(f"no figure is called {', '.join(unknown)}; --list names them")
    wanted = [figure for figure in FIGURES if not given.names or figure.name in given.names]
    rows: list[Row] = []
    for brokers in sorted({1, given.brokers}):
        there = [each for each in wanted if (1 if each.on_one else given.brokers) == brokers]
        with Place(given.quick, brokers) as place:
            rows += [_measured(figure, place) for figure in there]
    path = save(rows, given.quick, given.brokers)
    print(f"\n{table(rows)}\n\nsaved as {path}, with a plot next to it")
    return 1 if any(isinstance(found, str) for _, found in rows) else 0


def _measured(figure: Figure, place: Place) -> Row:
    began = time.monotonic()
    print(f"measuring: {figure.what} ...", flush=True)
    try:
        row: Row = (figure, figure.run(place))
    except (AnabranchError, RuntimeError, OSError, subprocess.SubprocessError) as error:
        row = (figure, f"{type(error).__name__}: {error}")
    print(f"{show(row)}  ({time.monotonic() - began:.0f} s)", flush=True)
    return row


if __name__ == "__main__":
    sys.exit(main())
