"""A topic's journal: its entries, read from Redis and from files."""
