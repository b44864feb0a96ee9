"""Relay on each server that pip and Debian bring, in each topology, without a file and with one."""
