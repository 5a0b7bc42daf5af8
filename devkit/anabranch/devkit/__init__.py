"""Tools around a node and no part of one: `anabranch dev` and `demo`, and processes for tests.

They are a Kafka and nodes as child processes, the demo, and the judge of histories. The command
line finds the two commands by name. Nothing that a node or the SDK imports is here.
"""
