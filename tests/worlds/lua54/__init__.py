"""A server whose scripts run by Lua 5.4: a real Valkey that has everything else, and its commands."""
