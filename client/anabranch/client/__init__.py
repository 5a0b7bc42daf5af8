"""The SDK: producers and consumers of scalable topics."""
