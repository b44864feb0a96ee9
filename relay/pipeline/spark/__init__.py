"""Spark itself: its session, its Java, its files, and which Redis a job works on."""
