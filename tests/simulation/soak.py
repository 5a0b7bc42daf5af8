"""Runs new seeds until interrupted, or for a given time, on every core: `make soak`."""

from __future__ import annotations

import argparse
import os
import secrets
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import count, islice, takewhile

from simulation.run import Report, simulate


def reports(seeds: Iterator[int], workers: int) -> Iterator[Report]:
    """Simulates seeds on several processes, odd ones with topics, of each eight one with lists of
    them, and one with roles; yields as they finish.
    """
    with ProcessPoolExecutor(workers) as pool:

        def begin(count: int) -> set[Future[Report]]:
            return {
                pool.submit(
                    simulate, seed, topics=seed % 2 == 1, lists=seed % 8 == 0, roles=seed % 8 == 4
                )
                for seed in islice(seeds, count)
            }

        running = begin(2 * workers)
        while running:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                running |= begin(1)
                yield future.result()


def main() -> int:
    parser = argparse.ArgumentParser(description="Simulate new seeds until interrupted.")
    parser.add_argument("--minutes", type=float, default=0.0, help="stop after this time")
    parser.add_argument("--first", type=int, help="the first seed; drawn by chance if not given")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    first = secrets.randbelow(1 << 40) if options.first is None else options.first
    end = time.monotonic() + options.minutes * 60 if options.minutes else float("inf")
    seeds = takewhile(lambda _: time.monotonic() < end, count(first))
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    done = failed = 0
    began = time.monotonic()
    sys.stdout.write(f"seeds from {first}; interrupt to stop\n")
    try:
        for report in reports(seeds, options.workers):
            done += 1
            if report.violation:
                failed += 1
                sys.stdout.write(report.explain() + "\n")
            if done % 100 == 0:
                took_s = time.monotonic() - began
                sys.stdout.write(f"{done} seeds in {took_s:.0f} s, {failed} failed\n")
                sys.stdout.flush()
    except KeyboardInterrupt:
        pass
    sys.stdout.write(f"{done} seeds, {failed} failed\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
