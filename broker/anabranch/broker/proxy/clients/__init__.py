"""The clients of a proxy: its binary port, and what each of them has under way."""
