"""Relay: a Kubernetes sidecar that makes Redis a durable, precise timer service."""

__version__ = "0.1.0"
