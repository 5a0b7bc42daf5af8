"""Stream consumers. One receives its messages in order (`consumer`), or has a handler work on keys
side by side (`run`): which message may start (`lanes`), how many at once (`width`), and the end of
a failure (`retry`).
"""
