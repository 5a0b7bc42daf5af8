"""A client's knowledge of nodes and topics: layouts that nodes push, and traffic reports
to nodes.
"""
