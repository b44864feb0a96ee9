"""An application that is pushed to: says its port on standard output, then obeys payloads.

`ack` is acknowledged at once; `wait` says so and waits for SIGUSR1; `die` kills the process.
"""

from __future__ import annotations

import asyncio
import os
import signal

from relay.client import Delivery, PushHandlers

push = PushHandlers(shutdown_timeout=20)
go = asyncio.Event()


@push.on("t")
async def handle(delivery: Delivery) -> None:
    print(f"started {delivery.timer_id}", flush=True)
    if delivery.payload == b"die":
        os.kill(os.getpid(), signal.SIGKILL)
    if delivery.payload == b"wait":
        await go.wait()


async def main() -> None:
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, go.set)
    await push.run(os.environ["LISTEN"])
    print("ended in order", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
