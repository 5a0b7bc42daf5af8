"""Scalable topics in a node: what splits and merges take, layouts, lists, memory."""
