"""Lists of topics on their way through a proxy, in bounded memory."""
