"""The pure part of work on messages side by side: which may start next (`lanes`), how many at once
(`width`), and what becomes of a failure (`retry`). The shell is `_consumer/run.py`.
"""
