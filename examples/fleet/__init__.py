"""`make demo-cluster`: one of three nodes is killed, and a topic gets more partitions while it is used."""
