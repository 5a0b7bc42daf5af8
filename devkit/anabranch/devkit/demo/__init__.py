"""`anabranch demo`: a cluster on a real trace, with moves, splits, crashes and an audit."""
