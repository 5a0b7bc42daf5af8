"""A recording of load: what brokers have told of themselves and of their bundles, as lines of JSON.

A line is about a broker or about a bundle, and holds until the next one about the same:

- a broker, as it measured itself: `{"timeMs", "broker", "resources": {"cpu": {"usage", "limit"},
  ...}}`; or, where nobody has measured, what it can carry: `{"timeMs", "broker", "capacity",
  "idle"}`, bytes a second in and out that fill it, and the share that is used without any.
- a bundle: `{"timeMs", "bundle", "broker", "load": {"msgThroughputIn", ...}}`, `broker` being its
  owner.

Times never go back. Whatever cannot be meant is refused by its line.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from anabranch.core.balance.bundle_load import BundleLoad, TopBundlesLoadData
from anabranch.core.balance.reports import Resources
from anabranch.core.balance.usage import ResourceUsage, is_sound
from anabranch.core.errors import InvalidInputError
from anabranch.core.names import broker_id, parse_namespace
from anabranch.core.ring import split_bundle_name

_FAULTS_MAX: Final = 10
_TIME_MAX_MS: Final = 253_402_300_799_000  # the last that a calendar has
_RESOURCES: Final = ("cpu", "memory", "direct_memory", "bandwidth_in", "bandwidth_out")


class RecordedUse(
    ResourceUsage, frozen=True, gc=False, forbid_unknown_fields=True, omit_defaults=True
):
    """Use and limit of a resource, in a file."""


class RecordedResources(
    msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True
):
    """A broker's resources, in a file; one that is not there is not used."""

    cpu: RecordedUse = RecordedUse()
    memory: RecordedUse = RecordedUse()
    direct_memory: RecordedUse = RecordedUse()
    bandwidth_in: RecordedUse = RecordedUse()
    bandwidth_out: RecordedUse = RecordedUse()

    @property
    def all(self) -> tuple[ResourceUsage, ...]:
        """Each of them, in the order of `Resources`."""
        return tuple(getattr(self, name) for name in _RESOURCES)


class RecordedLoad(
    BundleLoad,
    frozen=True,
    gc=False,
    rename="camel",
    forbid_unknown_fields=True,
    omit_defaults=True,
):
    """A bundle's load, in a file; what is not there is 0."""

    @property
    def plain(self) -> BundleLoad:
        """The load without the form."""
        return BundleLoad(*msgspec.structs.astuple(self))


class BrokerLine(
    msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True
):
    """What a broker had, or what it can carry."""

    time_ms: int
    broker: str
    capacity: float | None = None
    idle: float | None = None
    resources: RecordedResources | None = None


class BundleLine(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What a bundle had, and who owned it."""

    time_ms: int
    bundle: str
    broker: str
    load: RecordedLoad


Line = BrokerLine | BundleLine


class LoadRecording(msgspec.Struct, frozen=True):
    """A recording that can be used: in order, of two brokers at least, of some time."""

    lines: Sequence[Line]

    @property
    def begin_ms(self) -> int:
        """When it begins."""
        return self.lines[0].time_ms

    @property
    def end_ms(self) -> int:
        """When it ends."""
        return self.lines[-1].time_ms

    @property
    def brokers(self) -> tuple[str, ...]:
        """All brokers, in the order of their names."""
        return tuple(sorted({each.broker for each in self.lines if isinstance(each, BrokerLine)}))

    @property
    def bundles(self) -> tuple[str, ...]:
        """All bundles, in the order of their names."""
        return tuple(sorted({each.bundle for each in self.lines if isinstance(each, BundleLine)}))


def parse_recording(lines: Iterable[bytes]) -> LoadRecording:
    """Reads a file's lines. Raises InvalidInputError with the first lines at fault, and why."""
    found: list[Line] = []
    faults: list[str] = []
    kinds: dict[str, bool] = {}  # by broker: whether its lines say what it can carry
    owners: dict[str, int] = {}  # brokers that have bundles, and the first line that says so
    last_ms = 0
    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue
        if len(faults) >= _FAULTS_MAX:
            faults.append("and perhaps more")
            break
        try:
            line = parse_line(text)
            if line.time_ms < last_ms:
                raise InvalidInputError(
                    f"its time, {line.time_ms}, is before that of the line above, {last_ms}"
                )
            if isinstance(line, BundleLine):
                owners.setdefault(line.broker, number)
            else:
                _check_kind(line, kinds)
        except InvalidInputError as error:
            faults.append(f"line {number}: {error}")
            continue
        last_ms = line.time_ms
        found.append(line)
    faults += [
        f"line {number}: no line says what broker {broker} uses, or can carry"
        for broker, number in owners.items()
        if broker not in kinds and not faults
    ]
    if not faults:
        faults = [text for ok, text in _whole(found, kinds, owners) if not ok][:1]
    if faults:
        raise InvalidInputError("; ".join(faults))
    return LoadRecording(found)


def _whole(
    lines: Sequence[Line], brokers: Mapping[str, bool], owners: Mapping[str, int]
) -> list[tuple[bool, str]]:
    return [
        (len(brokers) >= 2, f"there are lines about {len(brokers)} brokers: two are the least"),
        (bool(owners), "there is no line about a bundle"),
        (
            bool(lines) and lines[-1].time_ms > lines[0].time_ms,
            "all lines are of one time: nothing can be replayed",
        ),
    ]


def _check_kind(line: BrokerLine, kinds: dict[str, bool]) -> None:
    is_capacity = line.capacity is not None
    if kinds.setdefault(line.broker, is_capacity) is not is_capacity:
        raise InvalidInputError(
            f"of {line.broker} some lines have resources and some a capacity: give one of both"
        )


def parse_line(text: bytes) -> Line:
    """Reads one line. Raises InvalidInputError with what is wrong with it."""
    try:
        found: Any = msgspec.json.decode(text)
        is_bundle = isinstance(found, dict) and "bundle" in found
        line: Line = (
            msgspec.convert(found, BundleLine) if is_bundle else msgspec.convert(found, BrokerLine)
        )
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidInputError(str(error)) from None
    if not 0 <= line.time_ms <= _TIME_MAX_MS:
        raise InvalidInputError(f"timeMs {line.time_ms} is no time")
    broker_id(line.broker)
    if isinstance(line, BundleLine):
        _check_bundle(line)
    else:
        _check_broker(line)
    return line


def _check_bundle(line: BundleLine) -> None:
    namespace, _ = split_bundle_name(line.bundle)
    parse_namespace(namespace)
    _check_sound(line.load.__struct_encode_fields__, msgspec.structs.astuple(line.load))


def _check_broker(line: BrokerLine) -> None:
    capacity = line.capacity
    if (capacity is None) is (line.resources is None):
        raise InvalidInputError(
            f"broker {line.broker} needs its resources, or a capacity, and not both"
        )
    if line.resources is not None:
        if line.idle is not None:
            raise InvalidInputError("idle goes with a capacity")
        for name, each in zip(_RESOURCES, line.resources.all, strict=True):
            _check_sound((f"usage of {name}", f"limit of {name}"), (each.usage, each.limit))
    if capacity is not None and not (is_sound(capacity) and capacity > 0):
        raise InvalidInputError(f"a capacity of {capacity:g} bytes a second is none")
    if line.idle is not None and not 0 <= line.idle < 1:
        raise InvalidInputError(f"idle is {line.idle:g}: it must be a share from 0 to below 1")


def _check_sound(names: Iterable[str], numbers: Iterable[float]) -> None:
    for name, number in zip(names, numbers, strict=True):
        if not is_sound(number):
            what = "negative" if number < 0 else "no number" if math.isnan(number) else "too much"
            raise InvalidInputError(f"{name} is {what}: {number}")


# --- recording ------------------------------------------------------------------------------------


class LoadRecorder:
    """Makes lines of what brokers report, as it comes; `at_ms`: the recorder's own clock.

    A bundle that its owner reports no more, and nobody else does, has no load that is known: it
    is written down with none.
    """

    def __init__(self) -> None:
        self.brokers: set[str] = set()
        self.lines = 0
        self._known: dict[str, tuple[str, BundleLoad]] = {}  # owner and load by bundle
        self._at_ms = 0

    @property
    def bundles(self) -> int:
        """Returns of how many bundles something is known."""
        return len(self._known)

    def measured(self, broker: str, resources: Resources, at_ms: int) -> list[bytes]:
        """A broker has told what it uses."""
        uses = msgspec.structs.asdict(resources)
        if not all(each.is_sound for each in uses.values()):
            return []
        recorded = {name: RecordedUse(each.usage, each.limit) for name, each in uses.items()}
        self.brokers.add(broker)
        line = BrokerLine(self._stamp(at_ms), broker, resources=RecordedResources(**recorded))
        return [self._encoded(line)]

    def reported(self, broker: str, report: TopBundlesLoadData | None, at_ms: int) -> list[bytes]:
        """A broker has told which its top bundles are; None: it has none any more."""
        stamp = self._stamp(at_ms)
        told = dict(report.bundles) if report is not None else {}
        lines = [
            line
            for bundle, load in told.items()
            if (line := self._line(bundle, broker, load, stamp)) is not None
        ]
        dropped = [
            bundle
            for bundle, (owner, load) in self._known.items()
            if owner == broker and bundle not in told and load != _NOTHING
        ]
        for bundle in dropped:
            line = self._line(bundle, broker, _NOTHING, stamp)
            lines += [] if line is None else [line]
        return lines

    def _line(self, bundle: str, broker: str, load: BundleLoad, stamp: int) -> bytes | None:
        if not load.is_sound or self._known.get(bundle) == (broker, load):
            return None
        try:
            parse_namespace(split_bundle_name(bundle)[0])
        except InvalidInputError:
            return None  # no bundle
        self._known[bundle] = broker, load
        recorded = RecordedLoad(*msgspec.structs.astuple(load))
        return self._encoded(BundleLine(stamp, bundle, broker, recorded))

    def _encoded(self, line: Line) -> bytes:
        self.lines += 1
        return msgspec.json.encode(line) + b"\n"

    def _stamp(self, at_ms: int) -> int:
        """Times in a recording never go back, though clocks may."""
        self._at_ms = max(self._at_ms, at_ms)
        return self._at_ms


_NOTHING: Final = BundleLoad()
