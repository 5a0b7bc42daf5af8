"""Balance (PIP-192, "Load Data Models"): loads, the choice of brokers for bundles, unloads and
splits.

`settings`: all settings of it.
`broker_load`: the use of resources, a broker's report on itself, and its times.
`bundle_load`: the loads of a broker's bundles, and the choice of those that it reports.
`reports`: a broker's reports of both, measurement by measurement.
`policies`: isolation, failure domains, anti-affinity groups.
`choosing`: the broker for a free bundle, by filters and load, and its grounds.
`shedding`: the bundles that leave overloaded brokers; `offload`: the exchange between two brokers.
`adjusting`: thresholds of both that follow the noise of the load.
`splitting`: the bundles that an owner splits, and their cuts.
`strategies`: operators' functions that decide in place of shedding, assigning and splitting.
`cycle`: the times of these decisions, and the notes between them.
`counters`: results and reasons, as metrics show them.
"""

# Code outside of core may import these.
__all__ = [
    "adjusting",
    "broker_load",
    "bundle_load",
    "choosing",
    "counters",
    "cycle",
    "offload",
    "policies",
    "reports",
    "settings",
    "shedding",
    "splitting",
    "strategies",
]
