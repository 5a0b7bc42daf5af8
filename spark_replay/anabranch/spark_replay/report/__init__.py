"""The audit's result for readers: JSON for programs, a table for terminals, a page for eyes."""
