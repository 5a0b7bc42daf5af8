"""Consumers over many topics: which topics they have (`membership`), whose turn it is (`turns`),
what the topics share (`connections`, `plane`, `offsets`), and the consumers themselves.
"""
