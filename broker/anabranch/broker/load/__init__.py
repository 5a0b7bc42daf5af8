"""How much traffic the segments of this node's topics have: measured here, told to all nodes."""
