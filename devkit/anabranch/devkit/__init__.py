"""Tools around a node and no part of one: `anabranch dev` and `demo`, and what tests start.

A Kafka and nodes as child processes, the demo, and the judge of histories. The command line finds
the two commands by name; nothing that a node or the SDK imports is here.
"""
