"""The nodes behind a proxy: which there are, and the connections to them."""
