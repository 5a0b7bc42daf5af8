"""The base of all consumers, and those that read buckets in order: stream and checkpoint
consumers.
"""
