"""The guards before every route: limits of connections and bodies, and checks of the asker."""
