"""Checks of the leader, of permissions, and of settings in force."""
