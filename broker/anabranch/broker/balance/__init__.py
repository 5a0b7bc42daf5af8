"""What a node does so that load is balanced: it measures, reports, sheds, splits."""
