"""From a delivery to its outcome: handlers, leases, receipts and settlements."""
