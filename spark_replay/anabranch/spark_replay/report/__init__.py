"""The frame of every report: its page, its charts over time, and where it is written."""
