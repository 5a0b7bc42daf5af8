"""Consumers over many topics: the turns of topics (`turns`), the parts that they share
(`connections`, `plane`, `offsets`, together `resources`), and the consumers themselves.
"""
