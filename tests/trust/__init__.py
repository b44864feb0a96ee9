"""Certificates, tokens and JWTs: what listeners and callers prove."""
