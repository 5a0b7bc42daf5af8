"""What stands before every route: limits of connections and bodies, and who may ask."""
