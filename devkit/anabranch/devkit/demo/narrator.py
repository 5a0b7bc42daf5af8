"""`Narrator`: the demo's words for people, with the seconds that have passed."""

from __future__ import annotations

import time
from collections.abc import Iterable

import click


class Narrator:
    """Numbers the steps of a run, and measures each."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()
        self._steps: list[tuple[str, float]] = []  # short names, and seconds from the start

    @property
    def passed_s(self) -> float:
        """Seconds from the start."""
        return time.monotonic() - self._began_s

    def step(self, name: str, promise: str) -> None:
        """Begins the next step; `name` is for the account of times."""
        self._steps.append((name, self.passed_s))
        click.echo(f"\n{len(self._steps)}. {promise}\n")

    def say(self, text: str) -> None:
        """Tells of something that has just happened."""
        click.echo(f"{self.passed_s:6.1f} s  {text}")

    def show(self, lines: Iterable[str]) -> None:
        """Prints lines below the one that was said last."""
        for line in lines:
            click.echo(f"          {line}")

    def end(self, result: str) -> None:
        """Tells how long each step took, and at last the result."""
        ends_s = [*(began_s for _, began_s in self._steps[1:]), self.passed_s]
        each = ", ".join(
            f"{name} {end_s - began_s:.0f} s"
            for (name, began_s), end_s in zip(self._steps, ends_s, strict=True)
        )
        click.echo(f"\nThe demo took {self.passed_s:.0f} s: {each}.\nResult: {result}")
