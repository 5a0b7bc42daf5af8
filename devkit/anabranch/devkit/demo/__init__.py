"""`anabranch demo`: one story that shows each promise once, on a real trace."""
