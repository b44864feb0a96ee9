"""An application that its relay dials."""

from relay.client import Delivery, PushHandlers

client = PushHandlers()


@client.on("t")
async def handle(_: Delivery) -> None: ...
