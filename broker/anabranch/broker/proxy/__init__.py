"""`anabranch proxy`: one address for clients that cannot reach the nodes. It keeps nothing."""
