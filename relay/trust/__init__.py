"""What listeners and their callers prove: certificates, tokens and JWTs, from files that are watched."""
