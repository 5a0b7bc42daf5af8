"""Sessions of brokers: leases, signs of life, and the detection of silent brokers.

`machine`: its moves with their states and guards, and the changes by records.
`lease`: the times at which a broker may act, and at which it may be given up.
`log_contact`: the broker's contact with the log.
"""

# Code outside of core may import these.
__all__ = [
    "lease",
]
