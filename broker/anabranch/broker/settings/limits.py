"""The settings of log lines, and of how many things tenants may have."""

from __future__ import annotations

from typing import Literal

from anabranch.broker.settings.fields import AtRunTime, SettingFields, field
from anabranch.core.tenants.limits import LIMIT_MAX, TenantLimit


class LogFields(SettingFields):
    """The choice of events to log, and their format."""

    log_level: AtRunTime[Literal["debug", "info", "warning", "error"]] = field(
        "info", description="Least severity that is logged."
    )
    log_format: Literal["json", "text"] = field("text", description="Form of log lines.")


class TenantLimitFields(SettingFields):
    """Named as in Pulsar's broker.conf."""

    max_namespaces_per_tenant: AtRunTime[int] = field(
        0, ge=0, le=LIMIT_MAX, description="Most namespaces of a tenant; 0: any number."
    )
    max_topics_per_namespace: AtRunTime[int] = field(
        0,
        ge=0,
        le=LIMIT_MAX,
        description="Most scalable topics of a namespace; 0: any number.",
    )
    max_subscriptions_per_topic: AtRunTime[int] = field(
        0,
        ge=0,
        le=LIMIT_MAX,
        description="Most subscriptions of a scalable topic; 0: any number.",
    )
    max_consumers_per_subscription: AtRunTime[int] = field(
        0,
        ge=0,
        le=LIMIT_MAX,
        description="Most consumers of a subscription; 0: any number.",
    )

    def tenant_limit(self, what: TenantLimit) -> int:
        """Returns the cluster's limit, or else this node's; 0 for any number."""
        limit: int = getattr(self, what.name.lower())
        return limit
