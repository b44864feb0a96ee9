"""What proves and protects: certificates, tokens, JWTs, policies, keyrings, from files that are watched."""
