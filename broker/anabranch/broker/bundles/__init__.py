"""Who owns which bundle: the cache of owners, and look-ups; where bundles are cut by hand."""
