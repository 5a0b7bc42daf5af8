"""What holds for every test: none leaves its logging to the next one, none depends on time or
chance, and what fails is told at once.
"""

from __future__ import annotations

import inspect
import logging
import signal
from collections import Counter
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import HealthCheck, settings

pytest.register_assert_rewrite("support")  # so that what fails there says what was found, too

from support import steady  # noqa: E402
from support.opening import opened  # noqa: E402

pytest_plugins = ["support.budget", "support.leftovers"]

# How long an example takes is the machine's matter. A property runs again and again, with new
# seeds, until its seconds are spent, so one run of it has few examples.
settings.register_profile(
    "slices",
    deadline=None,
    max_examples=25,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("slices")
_TOLD = 2_000  # characters of each failure; the summary has all of it


@pytest.fixture(autouse=True)
def own_logging() -> Iterator[None]:
    """Commands configure logging for their process; here that is everybody's, and its stream that
    of a test that is over.
    """
    loggers = [logging.getLogger(), logging.getLogger("anabranch")]
    before = [(each.handlers[:], each.level, each.propagate) for each in loggers]
    yield
    structlog.reset_defaults()
    for each, (handlers, level, propagates) in zip(loggers, before, strict=True):
        each.handlers[:] = handlers
        each.setLevel(level)
        each.propagate = propagates


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs a test that is a coroutine; what hangs in it ends by the time-out of all tests."""
    test = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test):
        return None
    wanted = {name: pyfuncitem.funcargs[name] for name in inspect.signature(test).parameters}
    told = pyfuncitem.get_closest_marker("loops")
    for run in told.args if told is not None else [steady.run]:
        run(opened(test, wanted))
    return True


@pytest.hookimpl(wrapper=True, tryfirst=True)  # once it is known which tests run
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """First what lasts, then the groups with most tests: else such a one would end the run alone.

    Workers take groups in this order (`--no-loadscope-reorder`).
    """
    yield
    counts = Counter(map(_group, items))
    lasting = {_group(item) for item in items if item.get_closest_marker("lasting") is not None}
    items.sort(key=lambda item: (_group(item) not in lasting, -counts[_group(item)]))


def _group(item: pytest.Item) -> str:
    """What one worker takes at once."""
    group = item.get_closest_marker("xdist_group")
    return item.nodeid if group is None else str(group.args[0])


class ToldAtOnce:
    """Says what failed when it has failed: a run that is broken off comes to no summary."""

    def __init__(self, terminal: pytest.TerminalReporter) -> None:
        self._terminal = terminal

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._terminal.write("\n")
            self._terminal.write_line(f"FAILED in {report.when}: {report.nodeid}")
            self._terminal.write_line(report.longreprtext[-_TOLD:])


@pytest.hookimpl(trylast=True)  # the terminal's reporter is there by then
def pytest_configure(config: pytest.Config) -> None:
    # A shell has what it runs in the background ignore Ctrl-C, and so all that this starts.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None and not hasattr(config, "workerinput"):  # workers report to that one
        config.pluginmanager.register(ToldAtOnce(terminal))
