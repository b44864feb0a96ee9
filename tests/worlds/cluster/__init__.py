"""A Redis or Valkey Cluster of several real nodes."""
