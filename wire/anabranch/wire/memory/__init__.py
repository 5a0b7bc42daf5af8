"""The memory for lists of topics (PIP-442): its limits, its queues, and the payloads that are kept
once.
"""
