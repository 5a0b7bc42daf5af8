"""A node's part in balancing load: it measures, reports, sheds and splits."""
