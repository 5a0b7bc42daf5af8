"""What all consumers share, and those that read buckets in order: stream and checkpoint ones."""
