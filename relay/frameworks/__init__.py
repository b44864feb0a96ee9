"""The client's life within that of a web application: a module for each framework, loaded only by its users.

`relay.frameworks.fastapi` and `.starlette` open the client as the server starts, and so does `.asgi` for what
has no lifespan of its own; `.django` and `.flask` have commands that run handlers. Each has an extra:
`pip install 'relay-timers[fastapi]'`.
"""
