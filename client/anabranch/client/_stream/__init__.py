"""Stream consumers. One receives its messages in order (`consumer`), or has a handler work on keys
side by side (`run`, as `schedule` says): the message that may start next (`lanes`), how many at
once (`width`), the end of a failure (`retry`, `letters`), and numbers (`stats`).
"""
