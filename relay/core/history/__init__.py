"""One timer's life, as the journals of its topic's partitions tell it."""
