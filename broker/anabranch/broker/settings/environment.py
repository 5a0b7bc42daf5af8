"""Settings from the environment: `ANABRANCH_` and a setting's name, in either of two spellings.

`ANABRANCH_DATA_DIR` is what people and container platforms write; `ANABRANCH_dataDir` has the name
as it is. Platforms set variables of the same prefix by themselves, for services that are called
like us (Kubernetes `ANABRANCH_SERVICE_HOST`, Docker's links `ANABRANCH_PORT=tcp://...`): they are
left alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Final

from anabranch.access.kafka import name_of_variable

ENVIRONMENT_PREFIX: Final = "ANABRANCH_"
# Variables of the same prefix that are no settings of a node.
_OTHER_VARIABLES: Final = frozenset(
    {
        "ANABRANCH_IVY_SETTINGS",
        "ANABRANCH_SPARK_CONF",
        "ANABRANCH_SPARK_MASTER",
        "ANABRANCH_TLS_CA",
        "ANABRANCH_TLS_CERT",
        "ANABRANCH_TLS_KEY",
        "ANABRANCH_TOKEN",
        "ANABRANCH_TOKEN_FILE",
        "ANABRANCH_URL",
        "ANABRANCH_USER",
    }
)
_WORD: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")  # a word's start
_OF_A_SERVICE: Final = re.compile(
    r"(?P<service>ANABRANCH(_[A-Z0-9]+)*?)_("
    r"SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?"
    r"|(?P<port>PORT)|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)


def variable_of(setting: str) -> str:
    """Returns the environment's variable for a setting.

    >>> variable_of("brokerShutdownTimeoutMs")
    'ANABRANCH_BROKER_SHUTDOWN_TIMEOUT_MS'
    >>> variable_of("loadBalancerCPUResourceWeight")
    'ANABRANCH_LOAD_BALANCER_CPU_RESOURCE_WEIGHT'
    """
    return ENVIRONMENT_PREFIX + _WORD.sub("_", setting).upper()


def from_environment(
    environment: Mapping[str, str],
    names: Collection[str],
    problems: list[str],
    near: Callable[[str, str], str],
) -> dict[str, object]:
    """Returns values by setting; adds unknown names to `problems`, with the settings `near` to
    them.
    """
    found: dict[str, object] = {}
    said_by: dict[str, str] = {}
    plain = {name.upper(): name for name in names}
    for variable, value in environment.items():
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable in _OTHER_VARIABLES:
            continue
        if name_of_variable(variable):  # a property of Kafka's clients
            continue
        said = variable.removeprefix(ENVIRONMENT_PREFIX)
        name = said if said in names else plain.get(said.replace("_", "")) if said.isupper() else ""
        if _is_a_platform_s(variable, value, environment, bool(name)):
            continue
        if not name:
            hint = near(said, ENVIRONMENT_PREFIX)
            problems.append(f"{variable} (environment) is no setting{hint}")
        elif name in said_by and found[name] != value:
            problems.append(f"{said_by[name]} and {variable} (environment) differ: unset one")
        else:
            found[name], said_by[name] = value, variable
    return found


def _is_a_platform_s(
    variable: str, value: str, environment: Mapping[str, str], is_setting: bool
) -> bool:
    """Returns whether a container platform made the variable.

    A variable with a setting's name is a platform's only beside the host that platforms give each
    service: `ANABRANCH_WEB_SERVICE_PORT` with `ANABRANCH_WEB_SERVICE_HOST`.
    """
    match = _OF_A_SERVICE.fullmatch(variable)
    if match is None:
        return False
    if is_setting:
        return f"{match['service']}_SERVICE_HOST" in environment
    return match["port"] is None or "://" in value
