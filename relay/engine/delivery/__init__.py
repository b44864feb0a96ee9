"""From a claim to its end: leases, sessions, the dispatcher, the settler, the lease keeper."""
