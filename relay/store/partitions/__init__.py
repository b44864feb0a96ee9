"""Topics of several partitions."""
