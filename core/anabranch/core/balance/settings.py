"""`BalanceSettings`: every setting of the balancer, by its name in Pulsar's configuration.

`NAMES` has a field's name in a file, or in JSON. The field is that name without `loadBalancer`, in
this language's manner.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum, unique
from typing import Final

import msgspec

from anabranch.core.errors import InvalidInputError
from anabranch.core.names import parse_namespace

_TOMBSTONE_DELAY_MIN_S: Final = 30
_NUMBER_MAX: Final = 10**12  # so many minutes, in milliseconds, still have a place in a record
_OTHERWISE: Final[Mapping[str, str]] = {  # the names that follow no rule
    "cpu_resource_weight": "loadBalancerCPUResourceWeight",
    "broker_load_data_ttl_in_seconds": "loadBalancerBrokerLoadDataTTLInSeconds",
    "shedding_delay_in_seconds": "loadBalanceSheddingDelayInSeconds",
    "prefer_later_versions": "preferLaterVersions",
    "failure_domains_enabled": "failureDomainsEnabled",
    "default_namespace_bundle_split_algorithm": "defaultNamespaceBundleSplitAlgorithm",
    "flow_or_qps_difference_threshold_percentage": "flowOrQpsDifferenceThresholdPercentage",
}


@unique
class SplitAlgorithm(StrEnum):
    """The way in which a split finds its boundary."""

    RANGE = "range_equally_divide"
    TOPIC_COUNT = "topic_count_equally_divide"
    POSITIONS = "specified_positions_divide"
    FLOW_OR_QPS = "flow_or_qps_equally_divide"


def setting_name(field: str) -> str:
    """The name of a field in configuration.

    >>> setting_name("broker_load_target_std")
    'loadBalancerBrokerLoadTargetStd'
    """
    found = _OTHERWISE.get(field)
    return found or "loadBalancer" + "".join(word.capitalize() for word in field.split("_"))


class BalanceSettings(msgspec.Struct, frozen=True, kw_only=True, rename=setting_name):
    """All settings of the balancer and their defaults; `fault_of` says what contradicts itself."""

    enabled: bool = True
    debug_mode_enabled: bool = False  # more is logged; nothing else changes

    # Load data. The average of the resources' use is h * the average before + (1 - h) * now.
    history_resource_percentage: float = 0.9
    cpu_resource_weight: float = 1.0
    memory_resource_weight: float = 0.0
    direct_memory_resource_weight: float = 0.0
    bandwidth_in_resource_weight: float = 1.0
    bandwidth_out_resource_weight: float = 1.0
    report_update_max_interval_minutes: float = 15.0
    report_update_threshold_percentage: float = 10.0
    broker_load_data_ttl_in_seconds: float = 1800.0
    max_number_of_bundles_in_bundle_load_report: int = 10

    # Assignment.
    average_resource_usage_difference_threshold_percentage: float = 10.0
    broker_overloaded_threshold_percentage: float = 85.0
    broker_max_topics: int = 50_000
    prefer_later_versions: bool = False
    failure_domains_enabled: bool = False
    load_placement_strategy: str = ""

    # Shedding.
    shedding_enabled: bool = True
    shedding_interval_minutes: float = 1.0
    shedding_grace_period_minutes: float = 30.0
    shedding_delay_in_seconds: float = 180.0
    shedding_excluded_namespaces: tuple[str, ...] = ()
    shedding_bundles_with_policies_enabled: bool = False
    shedding_condition_hit_count_threshold: int = 3
    max_number_of_broker_shedding_per_cycle: int = 3
    broker_load_target_std: float = 0.25
    transfer_enabled: bool = True
    load_shedding_strategy: str = ""  # a strategy's name; "": the built-in rule

    # Thresholds of both that follow the noise of the load.
    adjusted_thresholds_enabled: bool = False
    adjusted_thresholds_max_factor: float = 2.0

    # Splitting.
    auto_bundle_split_enabled: bool = True
    auto_unload_split_bundles_enabled: bool = True
    split_interval_minutes: float = 1.0
    max_number_of_bundles_to_split_per_cycle: int = 10
    namespace_bundle_split_condition_hit_count_threshold: int = 3
    namespace_maximum_bundles: int = 128
    namespace_bundle_max_topics: int = 1_000
    namespace_bundle_max_sessions: int = 1_000
    namespace_bundle_max_msg_rate: float = 30_000.0
    namespace_bundle_max_bandwidth_mbytes: float = 100.0
    default_namespace_bundle_split_algorithm: SplitAlgorithm = SplitAlgorithm.RANGE
    flow_or_qps_difference_threshold_percentage: float = 10.0
    bundle_split_strategy: str = ""

    # Service units' states.
    service_unit_state_tombstone_delay_time_in_seconds: float = 3600.0
    in_flight_service_unit_state_waiting_time_in_millis: float = 30_000.0
    service_unit_state_monitor_interval_in_seconds: float = 60.0

    @property
    def weights(self) -> tuple[float, float, float, float, float]:
        """Weights of processor, memory, direct memory, bandwidth in and out."""
        return (
            self.cpu_resource_weight,
            self.memory_resource_weight,
            self.direct_memory_resource_weight,
            self.bandwidth_in_resource_weight,
            self.bandwidth_out_resource_weight,
        )

    @property
    def bundle_max_bandwidth(self) -> float:
        """Bytes a second beyond which a bundle is split."""
        return self.namespace_bundle_max_bandwidth_mbytes * 1024 * 1024


NAMES: Final[Mapping[str, str]] = {
    field.name: field.encode_name for field in msgspec.structs.fields(BalanceSettings)
}
_LEAST_ONE: Final = (
    "max_number_of_bundles_in_bundle_load_report",
    "max_number_of_broker_shedding_per_cycle",
    "max_number_of_bundles_to_split_per_cycle",
    "broker_max_topics",
    "namespace_maximum_bundles",
    "namespace_bundle_max_topics",
    "adjusted_thresholds_max_factor",
)
_POSITIVE: Final = (
    "report_update_max_interval_minutes",
    "shedding_interval_minutes",
    "split_interval_minutes",
    "broker_overloaded_threshold_percentage",
    "namespace_bundle_max_msg_rate",
    "namespace_bundle_max_bandwidth_mbytes",
    "in_flight_service_unit_state_waiting_time_in_millis",
    "service_unit_state_monitor_interval_in_seconds",
)


def fault_of(settings: BalanceSettings) -> str:
    """The first thing that is wrong, or contradicts something else, in words; "" for nothing."""
    return next((text for ok, text in _rules(settings) if not ok), "")


def _rules(settings: BalanceSettings) -> list[tuple[bool, str]]:
    values = msgspec.structs.asdict(settings)
    numbers = {
        name: value
        for name, value in values.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
    name = NAMES
    ttl, interval = "broker_load_data_ttl_in_seconds", "report_update_max_interval_minutes"
    delay = "service_unit_state_tombstone_delay_time_in_seconds"
    in_flight = "in_flight_service_unit_state_waiting_time_in_millis"
    algorithm = "default_namespace_bundle_split_algorithm"
    return [
        *(
            (0 <= value <= _NUMBER_MAX, f"{name[each]} must be a number from 0 to {_NUMBER_MAX}")
            for each, value in numbers.items()
        ),
        *((values[each] >= 1, f"{name[each]} must be 1 or more") for each in _LEAST_ONE),
        *((values[each] > 0, f"{name[each]} must be more than 0") for each in _POSITIVE),
        (
            settings.history_resource_percentage < 1,
            f"{name['history_resource_percentage']} must be below 1: no load would ever change",
        ),
        (
            any(settings.weights),
            (
                "the weights of all resources are 0, so that no broker had a load: give one of "
                f"{name['cpu_resource_weight']} and its like a value"
            ),
        ),
        (
            settings.broker_load_data_ttl_in_seconds
            > settings.report_update_max_interval_minutes * 60,
            (
                f"{name[ttl]} must be longer than {name[interval]}: what is reported no more often "
                "would be out of date before the next report"
            ),
        ),
        (
            settings.service_unit_state_tombstone_delay_time_in_seconds >= _TOMBSTONE_DELAY_MIN_S,
            f"{name[delay]} must be {_TOMBSTONE_DELAY_MIN_S} or more",
        ),
        (
            settings.service_unit_state_tombstone_delay_time_in_seconds * 1000
            > settings.in_flight_service_unit_state_waiting_time_in_millis,
            (
                f"{name[delay]}, in milliseconds, must be more than {name[in_flight]}: a parent "
                "would be forgotten before its split could be repaired"
            ),
        ),
        (
            settings.default_namespace_bundle_split_algorithm is not SplitAlgorithm.POSITIONS,
            (
                f"{name[algorithm]} cannot be {SplitAlgorithm.POSITIONS.value}: nobody names "
                "positions for a split that is automatic"
            ),
        ),
        *(_namespace_rule(each) for each in settings.shedding_excluded_namespaces),
    ]


def _namespace_rule(namespace: str) -> tuple[bool, str]:
    try:
        parse_namespace(namespace)
    except InvalidInputError as error:
        return False, f"{NAMES['shedding_excluded_namespaces']}: {error}"
    return True, ""


_SYSTEM: Final = re.compile(r"pulsar/system|(?:sla-monitor|pulsar)/.+:\d+")


def is_system_namespace(namespace: str) -> bool:
    """Tells whether a namespace belongs to the cluster itself; the balancer leaves its bundles
    alone.

    >>> is_system_namespace("pulsar/system"), is_system_namespace("public/default")
    (True, False)
    """
    return _SYSTEM.fullmatch(namespace) is not None
