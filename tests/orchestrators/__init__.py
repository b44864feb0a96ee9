"""What reads the pipeline's events, by its own programs: `make test-orchestrators`."""
