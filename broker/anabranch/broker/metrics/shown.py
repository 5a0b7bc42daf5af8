"""Values that are kept elsewhere, and asked for when the metrics of a process are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector


class ShownValues:
    """On a registry of its own, so that several nodes or proxies can share a process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

    def gauge(self, name: str, text: str, value: Callable[[], float]) -> None:
        """A value that rises and falls."""
        Gauge(name, text, registry=self.registry).set_function(value)

    def total(self, name: str, text: str, value: Callable[[], int]) -> None:
        """A count that only grows; it is shown with `_total` at its end."""
        self.registry.register(_Total(name, text, value))

    def totals(
        self, name: str, text: str, label: str, values: Callable[[], Mapping[str, int]]
    ) -> None:
        """Registers totals by the values of a label, as `total` does for one."""
        self.registry.register(_Totals(name, text, label, values))


class _Total(Collector):
    def __init__(self, name: str, text: str, value: Callable[[], int]) -> None:
        self._name, self._text, self._value = name, text, value

    def collect(self) -> Iterable[Metric]:
        yield CounterMetricFamily(self._name, self._text, self._value())


class _Totals(Collector):
    def __init__(
        self, name: str, text: str, label: str, values: Callable[[], Mapping[str, int]]
    ) -> None:
        self._name, self._text, self._label, self._values = name, text, label, values

    def collect(self) -> Iterable[Metric]:
        found = CounterMetricFamily(self._name, self._text, None, [self._label])
        for value, count in self._values().items():
            found.add_metric([value], count)
        yield found
