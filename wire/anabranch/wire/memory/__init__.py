"""What lists of topics may take of memory (PIP-442), who waits for it, and what is kept once."""
