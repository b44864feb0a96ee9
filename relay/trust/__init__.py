"""What proves and protects: certificates, tokens, JWTs, policies and keyrings."""
