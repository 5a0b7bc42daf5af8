"""Consumers over many topics: their set of topics (`membership`), their turns (`turns`), the parts
that the topics share (`connections`, `plane`, `offsets`), and the consumers themselves.
"""
