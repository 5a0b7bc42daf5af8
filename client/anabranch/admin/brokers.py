"""Brokers, and the state of the node that is asked."""

from __future__ import annotations

from typing import Final

import msgspec

from anabranch.admin.calls import (
    NAMES,
    STRINGS,
    Answer,
    Call,
    Resource,
    RestMethod,
    TransportT,
    nothing,
    path,
)
from anabranch.core import names
from anabranch.core.entities.override import is_setting_name
from anabranch.core.errors import InvalidInputError


class LeaderBroker(Answer, frozen=True):
    """The broker that leads the cluster."""

    broker_id: str
    service_url: str


class BrokerAddresses(Answer, frozen=True):
    """The addresses of a broker. An empty one means that the broker does not have that port."""

    broker_id: str
    web_service_url: str
    web_service_url_tls: str
    broker_service_url: str
    broker_service_url_tls: str


class NamespaceOwnershipStatus(Answer, frozen=True, rename=None):
    """The status of a bundle that a broker owns, in the form of Pulsar's interface."""

    broker_assignment: str
    is_controlled: bool
    is_active: bool


class NodeStatus(Answer, frozen=True):
    """The state of the node that was asked."""

    broker_id: str
    cluster_name: str
    service_url: str  # the address for clients
    version: str
    mode: str  # joining, serving, safe, draining or stopped
    leader: str  # the one that this node knows; empty when there is none
    next_offset: int
    digest: str
    horizon: int
    lease_millis: int
    concerns: list[str]  # matters to look at although it serves; told to superusers
    service_url_tls: str = ""  # the same with TLS; empty for none


class SettingOverrideData(Answer, frozen=True):
    """A setting that the cluster overrides, and its effect on the node that was asked."""

    value: str
    before: str | None  # the override that this one replaced
    since_ms: int
    broker: str  # the one that was asked to
    ignored: str  # why it does not count there; empty: it does


_OVERRIDES: Final = msgspec.json.Decoder(dict[str, SettingOverrideData]).decode
_LEADER: Final = msgspec.json.Decoder(LeaderBroker).decode
_ADDRESSES: Final = msgspec.json.Decoder(list[BrokerAddresses]).decode
_OWNED: Final = msgspec.json.Decoder(dict[str, NamespaceOwnershipStatus]).decode
_STATUS: Final = msgspec.json.Decoder(NodeStatus).decode


def _brokers(*more: str) -> str:
    return path("admin", "v2", "brokers", *more)


def _setting(name: str) -> str:
    if not is_setting_name(name):
        raise InvalidInputError(
            f"{name!a:.200} is no setting: write its name as get_dynamic_configuration_names, or "
            "`anabranch settings`, has it"
        )
    return name


class Brokers(Resource[TransportT]):
    """Operations on brokers."""

    @RestMethod
    def get_active_brokers(self, cluster: str = "") -> Call[list[str]]:
        """Returns the ids (host:port) of the brokers that serve now.
        A node refuses a `cluster` that is not its own.
        """
        return Call("GET", _brokers(*filter(None, (cluster,))), NAMES)

    @RestMethod
    def get_leader_broker(self) -> Call[LeaderBroker]:
        """Returns the broker that leads. Raises NotFoundError while there is none."""
        return Call("GET", _brokers("leaderBroker"), _LEADER)

    @RestMethod
    def list_addresses(self) -> Call[list[BrokerAddresses]]:
        """Returns the addresses of each broker that serves now."""
        return Call("GET", _brokers("addresses"), _ADDRESSES)

    @RestMethod
    def get_owned_namespaces(
        self, cluster: str, broker: str
    ) -> Call[dict[str, NamespaceOwnershipStatus]]:
        """Returns the bundles that a broker owns, by tenant/namespace/range."""
        return Call("GET", _brokers(cluster, names.broker_id(broker), "ownedNamespaces"), _OWNED)

    @RestMethod
    def get_status(self) -> Call[NodeStatus]:
        """Returns the mode, the lease and the place in the log of the node that is asked."""
        return Call("GET", _brokers("status"), _STATUS)

    @RestMethod
    def get_runtime_configurations(self) -> Call[dict[str, str]]:
        """Returns the settings of the node that is asked, as text by name."""
        return Call("GET", _brokers("configuration", "runtime"), STRINGS)

    @RestMethod
    def get_dynamic_configuration_names(self) -> Call[list[str]]:
        """Returns the names of the settings that the cluster may override while its nodes run."""
        return Call("GET", _brokers("configuration"), NAMES)

    @RestMethod
    def get_all_dynamic_configurations(self) -> Call[dict[str, str]]:
        """Returns the values of the settings that are overridden, by name."""
        return Call("GET", _brokers("configuration", "values"), STRINGS)

    @RestMethod
    def get_setting_overrides(self) -> Call[dict[str, SettingOverrideData]]:
        """Returns the overrides by name, with the former value, the time and the broker of the
        change.
        """
        return Call("GET", _brokers("configuration", "overrides"), _OVERRIDES)

    @RestMethod
    def update_dynamic_configuration(self, name: str, value: str) -> Call[None]:
        """Overrides a setting for all nodes.
        Raises PreconditionError for a value that cannot be used.
        """
        return Call("POST", _brokers("configuration", _setting(name), value), nothing)

    @RestMethod
    def delete_dynamic_configuration(self, name: str) -> Call[None]:
        """Removes an override, so that every node goes by its own setting again."""
        return Call("DELETE", _brokers("configuration", _setting(name)), nothing)

    @RestMethod
    def get_version(self) -> Call[str]:
        """Returns the version of the node that is asked."""
        return Call("GET", _brokers("version"), bytes.decode)

    @RestMethod
    def health_check(self) -> Call[str]:
        """Returns `ok` while the node may own bundles. Raises UnavailableError while it may not."""
        return Call("GET", _brokers("health"), bytes.decode)

    @RestMethod
    def ready_check(self) -> Call[str]:
        """Returns `ok` once the node serves. Raises UnavailableError before."""
        return Call("GET", _brokers("ready"), bytes.decode)
