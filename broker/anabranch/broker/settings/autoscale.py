"""The settings of auto-scaling, by Pulsar's names; docs/autoscale.md explains them.

`AutoScalePolicy` declares those that are the policy of every topic that overrides nothing (PIP-483,
"Configuration"; PIP-486).
"""

from __future__ import annotations

from functools import cached_property
from typing import Final

from anabranch.broker.settings.declared import Declared
from anabranch.broker.settings.fields import AtRunTime, SettingFields, field
from anabranch.core.autoscale.policy import AutoScalePolicy, setting_name
from anabranch.core.autoscale.schedule import AutoScaleSettings

_DECLARED: Final = Declared(AutoScalePolicy, setting_name)


@_DECLARED.extend
class AutoScaleFields(SettingFields):
    """The part of a node's settings that says when topics change their segments by themselves."""

    scalable_topic_auto_scale_interval_seconds: AtRunTime[float] = field(
        60.0, ge=0.1, le=86_400, description="Time between looks at a topic's load."
    )
    scalable_topic_sealed_segment_drain_enabled: bool = field(
        True, description="Whether several consumers drain a sealed segment's backlog."
    )
    scalable_topic_sealed_segment_drain_delay_seconds: float = field(
        2.0,
        ge=0,
        le=86_400,
        description="Time after its seal before several consumers drain a segment.",
    )
    scalable_topic_load_report_interval_seconds: float = field(
        10.0, ge=0.1, le=3_600, description="Time between samples of a segment's traffic."
    )
    scalable_topic_load_report_rate_change_threshold: float = field(
        0.25, gt=0, le=10, description="Change of a rate, as a share, that is worth a record."
    )
    scalable_topic_load_window_seconds: float = field(
        60.0, ge=0.1, le=3_600, description="Time over which rates are averaged."
    )

    @cached_property
    def auto_scale_policy(self) -> AutoScalePolicy:
        """The policy of a topic that overrides nothing; it may have a fault (`fault_of`)."""
        return _DECLARED.read(self)

    def auto_scale_settings(self, *, is_allowed: bool) -> AutoScaleSettings:
        """Returns the part of them that a topic's controller must know."""
        interval_s = self.scalable_topic_auto_scale_interval_seconds
        return AutoScaleSettings(self.auto_scale_policy, interval_s, is_allowed)

    def drain_after_s(self) -> float | None:
        """Returns the time after which several consumers drain a backlog; None: never."""
        if not self.scalable_topic_sealed_segment_drain_enabled:
            return None
        return self.scalable_topic_sealed_segment_drain_delay_seconds
