"""Commands about scalable topics: their segments, subscriptions, messages and policies."""
