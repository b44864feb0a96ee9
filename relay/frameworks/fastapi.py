"""FastAPI: the client is open while the application is, and routes get it as a dependency.

>>> client = RelayClient()
>>> app = FastAPI(lifespan=lifespan(client))
>>> @app.post("/invoices/{number}/remind")
... async def remind_later(number: int, timers: ClientDep) -> None:
...     await timers.schedule("invoices", b"", delay=3600, timer_id=f"invoice-{number}")
"""

from typing import Annotated, TypeAlias

from fastapi import Depends

from relay.client import RelayClient
from relay.frameworks.starlette import lifespan, relay_client

__all__ = ["ClientDep", "lifespan", "relay_client"]

ClientDep: TypeAlias = Annotated[RelayClient, Depends(relay_client)]
"""The type of a route's parameter that gets the open client."""
