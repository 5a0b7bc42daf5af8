"""Checks of the log itself: that it is whole, and what nodes and snapshots made of it."""
