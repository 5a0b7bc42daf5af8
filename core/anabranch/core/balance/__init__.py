"""Balance (PIP-192, "Load Data Models"): loads, who may take a bundle, what to unload and to split.

`settings`: all of it that can be set.
`usage`: how much of a resource is used, and how far loads lie apart.
`broker_load`: what a broker says of itself, and when.
`bundle_load`: what a broker does for its bundles, and which of them it reports.
`reports`: what a broker tells of both, measurement by measurement.
`policies`: isolation, failure domains, anti-affinity groups.
`filters`: which brokers may take a bundle.
`least_usage`: the rule by which one of them is chosen for a free bundle.
`assigning`: whoever assigns goes by that; of equals it takes one, and says what that rested on.
`shedding`: which bundles leave overloaded brokers; `offload`: what a pair of brokers exchanges.
`outlook`: how loads stand, and what the next cycle of that would do.
`adjusting`: thresholds of both that follow the noise of the load.
`splitting`: which bundles an owner splits, and where they are cut.
`history`: what was done, and what came of it.
`strategies`: what one's own may decide in place of shedding, assigning and splitting.
`cycle`: when that is decided, and what is kept until the next time.
`counters`: results and reasons, as metrics show them.
"""

# What code outside of core may import.
__all__ = [
    "adjusting",
    "assigning",
    "broker_load",
    "bundle_load",
    "counters",
    "cycle",
    "filters",
    "history",
    "least_usage",
    "offload",
    "outlook",
    "policies",
    "reports",
    "settings",
    "shedding",
    "splitting",
    "strategies",
    "usage",
]
