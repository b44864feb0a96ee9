"""What proves and protects: certificates, tokens, JWTs, policies, keyrings."""
