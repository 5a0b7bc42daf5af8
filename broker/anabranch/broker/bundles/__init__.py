"""Who owns which bundle: the cache of owners, and look-ups."""
