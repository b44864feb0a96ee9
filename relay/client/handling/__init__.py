"""From a delivery to its outcome: handlers, leases and what is said of them."""
