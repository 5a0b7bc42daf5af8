"""Measurements, each as a ratio to a limit that is measured in the same run: `make bench`."""
