"""Checks of bundles: who owned them, and where they were placed."""
