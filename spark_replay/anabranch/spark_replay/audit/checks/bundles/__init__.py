"""Checks of bundles: their owners, and their placement."""
