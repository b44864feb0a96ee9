"""HTTP: probes and metrics."""
