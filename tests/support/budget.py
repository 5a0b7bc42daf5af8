"""Properties and simulations try new seeds in each run, for some seconds each, not a fixed number.

A run draws its first seed by chance and prints it; a failure prints the command that repeats it.
`--budget 20` spends twenty times as many seconds.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass

import hypothesis
import pytest

_PROPERTY_S = 0.4
_SEED = "--first-seed"


@dataclass(frozen=True, slots=True)
class Budget:
    """Seeds to try, from `first_seed` on; `factor` multiplies the seconds that a test names."""

    first_seed: int
    factor: float

    def seeds(self, seconds: float) -> Iterator[int]:
        """One seed at least, and further ones until the time is spent."""
        deadline = time.monotonic() + seconds * self.factor
        seed = self.first_seed
        while True:
            yield seed
            seed += 1
            if time.monotonic() >= deadline:
                return


@pytest.fixture(scope="session")
def budget(pytestconfig: pytest.Config) -> Budget:
    return of(pytestconfig)


def of(config: pytest.Config) -> Budget:
    return Budget(config.getoption(_SEED), config.getoption("--budget"))


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("budget", "seeds of properties and simulations")
    group.addoption(_SEED, type=int, help="the first one; drawn by chance if not given")
    group.addoption("--budget", type=float, default=1.0, help="a factor of the seconds spent")


@pytest.hookimpl(tryfirst=True)  # before xdist copies the options to its workers
def pytest_configure(config: pytest.Config) -> None:
    if config.option.first_seed is None:
        config.option.first_seed = secrets.randbelow(1 << 32)


def pytest_report_header(config: pytest.Config) -> str:
    return f"seeds from {_SEED}={config.option.first_seed}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Repeats a property, each time with the next seed, until its seconds are spent."""
    if not isinstance(item, pytest.Function) or not hypothesis.is_hypothesis_test(item.obj):
        return (yield)
    result: object = None
    for seed in of(item.config).seeds(_PROPERTY_S):
        # A state machine has its seed at its class.
        hypothesis.seed(seed)(getattr(item.obj, "_hypothesis_state_machine_class", item.function))
        try:
            if seed == item.config.option.first_seed:
                result = yield
            else:
                item.runtest()
        except Exception as error:
            error.add_note(f"again: .venv/bin/pytest '{item.nodeid}' {_SEED}={seed}")
            raise
    return result
