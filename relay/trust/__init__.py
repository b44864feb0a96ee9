"""What proves and protects: files of keys, which are watched, and the ciphers that use them."""
