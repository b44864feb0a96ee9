"""The commands that run or look at a daemon: `serve`, `dev`, `config`, `healthcheck`, `doctor`."""
