"""The traffic of the segments of this node's topics: measured here, told to all nodes."""
