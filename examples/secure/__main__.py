"""Runs in about 25 s; exit 0 if everything went as promised."""

from __future__ import annotations

import asyncio
import base64
import json
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from examples.demo.processes import daemon, exit_after, valkey
from examples.secure.house import SPIFFE, TOPIC, House
from examples.secure.lines import Https, Server, serial_at
from relay.client import Delivery, RelayClient
from relay.client.errors import CallError

PATIENCE = 120.0
"""Seconds within which all of it must end."""

TAKEN_OVER = 2.0
"""Seconds after which every relay has read a file that changed."""

SECRET = "carla@example.org"
CARLA, DORA = "customer-17", "customer-18"
TIMERS = f"/v1/topics/{TOPIC}/timers"


class Story:
    """What happens, and what the application saw of it."""

    def __init__(self, house: House, server: Server, target: str) -> None:
        self._house = house
        self._server = server
        self._target = target
        self._began = time.monotonic()
        self._web = Https(house.api, house.ca, house.web)
        self._anna = Https(house.api, house.ca, house.anna)
        self._otto = Https(house.api, house.ca, house.otto)
        self._nobody = Https(house.api, house.ca)
        self._stranger = Https(house.api, house.ca, "a token that nobody gave out")
        self._handled: Counter[str] = Counter()
        self._mail: Any = None
        self._scheduled = 0
        self._shown = 0
        self._left = 0
        self._flowing = True
        self._checks: dict[str, bool] = {}

    async def handle(self, delivery: Delivery) -> None:
        """Work on a timer: note what came. Returning acknowledges it."""
        self._handled[delivery.timer_id] += 1
        if delivery.timer_id == "mail-1":
            self._mail = delivery.json()

    async def run(self, client: RelayClient) -> None:
        """Play all chapters."""
        await self._who_may_what(client)
        await self._what_redis_shows()
        self.heading("The certificate and the key are replaced while timers flow")
        flow = asyncio.create_task(self._flow())
        await self._certificate()
        await self._key()
        self._flowing = False
        await flow
        while len(self._handled) < self._scheduled:
            await asyncio.sleep(0.05)
        self.say(f"all timers have been handled: {self._since()}")
        await self._forget()

    async def _who_may_what(self, client: RelayClient) -> None:
        self.heading("Who may do what")
        mail = {"message": {"to": SECRET, "text": "your table is free"}, "delay_sec": 8}
        status, answer = await self._web.call("PUT", f"{TIMERS}/mail-1", mail)
        self.say(f"web schedules mail-1: {status}, {answer['timer']['state'].removeprefix('TIMER_STATE_')}")
        self._scheduled += 1
        self._check("web may schedule", status == 201)
        status, answer = await self._web.call("GET", f"{TIMERS}/mail-1")
        self.say(f"web reads it back: {status}, {answer['detail']}")
        self._check("web may not read", status == 403)
        try:
            await client.schedule(TOPIC, b"", delay=60)
        except CallError as denied:
            self.say(f"reminders schedules: {denied}")
            self._check("the application may not schedule", denied.code.name == "PERMISSION_DENIED")
        else:
            self._check("the application may not schedule", False)
        status, answer = await self._anna.call("GET", f"{TIMERS}/mail-1")
        withheld = answer["timer"].get("content_withheld") and "message" not in answer["timer"]
        self.say(
            f"anna looks after it: {status}, {'its content is withheld' if withheld else 'with its content'}"
        )
        self._check("anna sees the timer and not what is in it", bool(status == 200 and withheld))
        status, answer = await self._nobody.call("GET", f"{TIMERS}/mail-1")
        self.say(f"somebody without a token reads it: {status}, {answer['detail']}")
        self._check("the policy gives nothing to callers without a token", status == 403)
        status, answer = await self._stranger.call("GET", f"{TIMERS}/mail-1")
        self.say(f"a stranger with a token of his own: {status}, {answer['detail']}")
        self._check("a wrong token is refused", status == 401)

    async def _what_redis_shows(self) -> None:
        self.heading("What lies in Redis")
        key, body = self._server.stored("mail-1")
        found = self._server.finds(SECRET)
        self.say(f"Redis has     {base64.b64encode(body)[:60].decode()}…, sealed with {key}")
        while self._mail is None:
            await asyncio.sleep(0.05)
        self.say(f"reminders got {json.dumps(self._mail)}")
        self.say(f"a search of all keys for {SECRET} finds {found}")
        self._check("Redis shows no content", found == 0)

    async def _forget(self) -> None:
        self.heading("Carla wants to be forgotten")
        mail = {"message": {"to": SECRET}, "delay_sec": 8}
        for who in (CARLA, DORA):
            status, answer = await self._web.call("PUT", f"{TIMERS}/mail-of-{who}", mail | {"seal_with": who})
            key, _ = self._server.stored(f"mail-of-{who}")
            self.say(f"web schedules a mail of {who}: {status}, sealed with {key[:16]}…")
            self._check("each customer has a key", bool(answer.get("sealed_with_subject")))
        forget = f"/v1/topics/{TOPIC}:forget-subject"
        asked = {"subject": CARLA, "note": "ticket 118"}
        status, answer = await self._anna.call("POST", forget, asked)
        self.say(f"anna forgets {CARLA}: {status}, {answer['detail']}")
        self._check("anna may not forget", status == 403)
        status, _ = await self._otto.call("POST", forget, asked)
        self.say(f"otto forgets {CARLA}: {status}")
        status, answer = await self._web.call("PUT", f"{TIMERS}/mail-2", mail | {"seal_with": CARLA})
        self.say(f"web schedules another one: {status}, {answer['detail']}")
        self._check("who was forgotten stays so", status == 422)
        self._scheduled += 1  # the other customer's
        while f"mail-of-{DORA}" not in self._handled or not self._server.dead():
            await asyncio.sleep(0.05)
        self.say(f"reminders got the mail of {DORA}; that of {CARLA} is a dead letter that nothing opens")
        self._check("a forgotten customer's mail never comes", f"mail-of-{CARLA}" not in self._handled)

    async def _flow(self) -> None:
        """Schedule 50 timers every quarter of a second, each due after two seconds."""
        batch = 0
        while self._flowing:
            names = [f"order-{batch}-{n}" for n in range(50)]
            batch += 1
            new = [{"timer_id": name, "message": {"to": SECRET}, "delay_sec": 2} for name in names]
            status, answer = await self._web.call("POST", f"{TIMERS}:batch", {"timers": new})
            if status != 200 or any("error" in result for result in answer["results"]):
                raise RuntimeError(f"a timer was refused: {status}")
            self._scheduled += len(new)
            await asyncio.sleep(0.25)

    async def _certificate(self) -> None:
        while len(self._handled) < 100:
            await asyncio.sleep(0.05)
        self.say(f"web schedules 200 timers a second, each due after two: {self._since()}")
        old = self._house.serial
        new = self._house.new_certificate()
        for name, address in (("gRPC", self._target), ("HTTPS", self._house.api)):
            while await asyncio.to_thread(serial_at, address) != new:
                await asyncio.sleep(0.1)
            self.say(f"{name} shows certificate …{new % 10**6:06} in the place of …{old % 10**6:06}")
        self.say(f"the application's stream went on: {self._since()} meanwhile")

    async def _key(self) -> None:
        self._house.keyring("k1", "k2", write="k1")
        self.say("k2 joins the keyring: it may open, and k1 seals")
        await asyncio.sleep(TAKEN_OVER)
        self._house.keyring("k1", "k2", write="k2")
        while not (by_key := self._server.by_key())["k2"]:
            await asyncio.sleep(0.05)
        self.say(f"k2 seals: of what waits, {by_key['k2']} are sealed with it and {by_key['k1']} with k1")
        while (by_key := self._server.by_key())["k1"]:
            await asyncio.sleep(0.05)
        self._house.keyring("k2", write="k2")
        self.say(f"nothing waits for k1 any more: it leaves the keyring, {self._since()} meanwhile")
        await asyncio.sleep(TAKEN_OVER)
        found = self._server.finds(SECRET)
        self._check("nothing was in the clear meanwhile", found == 0 and by_key.keys() <= {"k2"})

    def _since(self) -> str:
        """How many timers were handled since the last time."""
        handled = sum(self._handled.values())
        new, self._shown = handled - self._shown, handled
        return f"{new} handled"

    def heading(self, words: str) -> None:
        """Print the title of a chapter."""
        print(f"\n{words}", flush=True)

    def say(self, words: str) -> None:
        """Print a line with its time."""
        print(f"{time.monotonic() - self._began:5.1f} s  {words}", flush=True)

    def _check(self, promise: str, held: bool) -> None:
        self._checks[promise] = held

    def look_back(self) -> None:
        """Count what is left in Redis, once the application has ended."""
        self._left = self._server.by_key().total()

    def summary(self) -> int:
        """Say what was promised, and whether it held; return the exit code."""
        handled, again = len(self._handled), sum(self._handled.values()) - len(self._handled)
        whole = handled == self._scheduled and not self._left
        self._check(f"none was lost: {self._scheduled} timers were scheduled, {handled} were handled", whole)
        print()
        for promise, held in self._checks.items():
            print(f"{'  ✓' if held else '  ✗ BROKEN:'} {promise}")
        print(f"\n{again} timers were handled twice.")
        return 0 if all(self._checks.values()) else 1


async def main() -> int:
    """Start everything, play the story, and check it."""
    with tempfile.TemporaryDirectory(prefix="relay-secure-") as directory:
        house = House(Path(directory))
        house.keyring("k1", write="k1")
        async with valkey() as redis_url, daemon(redis_url, **house.settings()) as target:
            server = Server(redis_url, TOPIC)
            story = Story(house, server, target)
            introduce(story)
            client = RelayClient(target, credentials=house.credentials())
            client.on(TOPIC)(story.handle)
            async with client:
                await client.wait_ready(60)
                await story.run(client)
            story.look_back()
            server.close()
    return story.summary()


def introduce(story: Story) -> None:
    """Say who takes part."""
    print("A CA was made for this run. The relay's gRPC wants a certificate of it, and its HTTPS a token.")
    story.heading("Who is who")
    for who, shows, name, may in (
        ("web", "sends a static token", "token:web", "schedule"),
        ("reminders", "shows a certificate", SPIFFE, "deliver"),
        ("anna", "sends a JWT", "jwt:staff:anna", "read, operate"),
        ("otto", "sends a JWT", "jwt:staff:otto", "read, operate, admin"),
    ):
        print(f"         {who:<10} {shows:<21} {name:<43} may {may}")


if __name__ == "__main__":
    exit_after(main(), PATIENCE)
