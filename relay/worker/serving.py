"""Runs an application's client in this process until a signal, and reports its state when asked."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import socket
import sys
from collections.abc import Sequence
from dataclasses import replace

from relay.client import CallError, InvalidArgument, RelayClient
from relay.worker.handled_counts import HandledCounts
from relay.worker.loading import NoApplication, load
from relay.worker.logs import set_up

FAILED, BAD_INPUT = 1, 2
"""Exit codes: the relay refused; the application can't be started as it is."""

_log = logging.getLogger("relay.worker")


def main(arguments: Sequence[str]) -> int:
    """Run until SIGTERM, SIGINT, or the end of the process above; return the exit code."""
    options = _parsed(arguments)
    try:
        client = load(options.application)
    except NoApplication as error:
        print(f"relay: {error}", file=sys.stderr)
        return BAD_INPUT
    if not isinstance(client, RelayClient):
        print("relay: a PushHandlers is dialled by its relay: call its run(listen) yourself", file=sys.stderr)
        return BAD_INPUT
    set_up(options.log_format, options.number)
    if options.concurrency is not None:
        for topic, registration in client.registrations.items():
            if registration.concurrency is None:
                client.registrations[topic] = replace(registration, concurrency=options.concurrency)
    try:
        asyncio.run(_serve(client, options.control))
    except InvalidArgument as error:
        _log.error("the relay does not take it: %s", error)
        return BAD_INPUT
    except CallError as error:
        _log.error("the relay refuses: %s", error)
        return FAILED
    return 0


async def _serve(client: RelayClient, control: int | None) -> None:
    counts = HandledCounts()
    client.observers.append(counts)
    if control is None:
        await client.run()
        return
    reader, writer = await asyncio.open_connection(sock=socket.socket(fileno=control))
    answering = asyncio.create_task(_answer(client, counts, reader, writer))
    try:
        await client.run()
    finally:
        answering.cancel()
        await asyncio.gather(answering, return_exceptions=True)
        with contextlib.suppress(OSError):
            writer.write(_state(client, counts))  # what was counted since somebody asked last
            await writer.drain()
        writer.close()


async def _answer(
    client: RelayClient, counts: HandledCounts, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Say how the process stands as often as it is asked. Once nobody can ask any more, the process above has
    died, and this one ends in order."""
    with contextlib.suppress(OSError):
        while await reader.readline():
            writer.write(_state(client, counts))
            await writer.drain()
    _log.warning("the process that has started this one is gone; draining")
    client.stop()


def _state(client: RelayClient, counts: HandledCounts) -> bytes:
    return json.dumps({"ready": client.ready(), "topics": counts.topics}).encode() + b"\n"


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m relay.worker")
    parser.add_argument("application")
    parser.add_argument("--number", type=int, default=1)
    parser.add_argument("--control", type=int)
    parser.add_argument("--concurrency", type=int)
    parser.add_argument("--log-format", default="auto")
    return parser.parse_args(arguments)
