"""Checks of the log itself: that it is whole, and that nodes and snapshots agree with it."""
