"""What clients of a proxy ask over HTTP: passed on, or answered at once from look-ups."""
