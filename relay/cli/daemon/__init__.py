"""The commands that run or inspect a daemon: `serve`, `dev`, `config`, `healthcheck`, `doctor`."""
