"""The nodes of a Cluster: which of them has a call's keys, and what follows when it is sent elsewhere."""
