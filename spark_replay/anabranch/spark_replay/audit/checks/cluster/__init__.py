"""Checks of who leads, who may do what, and which settings are in force."""
