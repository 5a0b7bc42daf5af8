"""Which loads are sound, whatever brokers report."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from anabranch.core.balance.broker_load import BrokerLoadData, fault_of
from anabranch.core.balance.bundle_load import BundleLoad
from anabranch.core.balance.usage import ResourceUsage

_NOW_MS = 1_700_000_000_000
_NUMBERS = st.one_of(
    st.sampled_from((0.0, -1.0, math.nan, math.inf, 1e300, 5e-324)), st.floats(0, 1e9)
)
_LOADS = st.builds(
    BrokerLoadData,
    msg_throughput_in=_NUMBERS,
    weighted_max_ema=_NUMBERS,
    updated_at_ms=st.sampled_from((0, _NOW_MS, _NOW_MS + 120_000)),
)
_BUNDLE_LOADS = st.builds(BundleLoad, msg_throughput_in=_NUMBERS, msg_rate_in=_NUMBERS)


@given(_BUNDLE_LOADS, st.sampled_from(BundleLoad.__struct_fields__), _NUMBERS)
def test_a_bundles_load_is_sound_if_each_of_its_numbers_is(
    load: BundleLoad, name: str, number: float
) -> None:
    load = replace(load, **{name: number})
    values = [getattr(load, each) for each in BundleLoad.__struct_fields__]
    assert load.is_sound is all(0 <= each <= 1e15 for each in values)


@given(_LOADS, st.sampled_from(BrokerLoadData.__struct_fields__), _NUMBERS)
def test_a_load_with_a_fault_names_the_first_number_that_is_none(
    load: BrokerLoadData, name: str, number: float
) -> None:
    numeric = {
        each: value
        for each, value in (
            (each, getattr(load, each)) for each in BrokerLoadData.__struct_fields__
        )
        if not isinstance(value, ResourceUsage)
    }
    if name in numeric and name != "updated_at_ms":
        numeric[name] = number
        load = replace(load, **{name: number})
    else:
        load = replace(load, cpu=ResourceUsage(number, 100.0), updated_at_ms=_NOW_MS)
        numeric["updated_at_ms"] = _NOW_MS
    wrong = [] if load.cpu.is_sound else ["cpu"]
    wrong += [each for each, value in numeric.items() if not 0 <= value <= 1e15]
    if load.updated_at_ms > _NOW_MS:
        assert "ahead" in fault_of(load, _NOW_MS)
    else:
        assert fault_of(load, _NOW_MS) == (
            f"its {wrong[0]} is negative or no number" if wrong else ""
        )
