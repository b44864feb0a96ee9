"""The application of both examples, beside a real relay: reminders by stream and by push."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from tests.languages.toolchains import output
from tests.servers import free_port
from tests.worlds.relay.processes import START_TIMEOUT, Process
from tests.worlds.relay.stage import Stage
from tests.worlds.waiting import eventually

TOPIC = "reminders"
Way = Literal["stream", "push"]
USAGE = 2


class Reminders(Process):
    """The application as a process."""

    def __init__(self, stage: Stage, command: Sequence[str], **settings: str) -> None:
        super().__init__((), stage.directory / "application.log", settings)
        self.arguments = list(command)

    def reminded(self) -> list[str]:
        """The lines that it has printed, sorted."""
        return sorted(line for line in self.output().splitlines() if line.startswith(f"{TOPIC}/"))


def play(stage: Stage, way: Way, command: Sequence[str], second: str) -> None:
    """Schedule, cancel, handle, fail, reject, and stop. `second` is the length of a second as an argument."""
    address = f"127.0.0.1:{free_port()}"
    prefix = f"RELAY_TOPICS__{TOPIC}__DELIVERY__"
    pushed = {f"{prefix}MODE": "push", f"{prefix}TARGET": address}
    relay = stage.relay(settings=pushed if way == "push" else {})
    where = {"RELAY_TARGET": relay.target}
    words = ("push", address, TOPIC) if way == "push" else ("stream", TOPIC)
    process = stage.join(Reminders(stage, [*command, *words], **where))
    process.spawn()

    def produce(*words: str) -> str:
        done = output([*command, *words], where)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert produce("schedule", TOPIC, "tea", second, "Ostfriesentee ☕").startswith(f"{TOPIC}/tea is due ")
    produce("schedule", TOPIC, "f", second, "flaky")
    produce("schedule", TOPIC, "w", second, "wrong")
    far = second.replace("1", "3600", 1)
    said = ""
    for _ in range(10):
        produce("schedule", TOPIC, "n", far, "never")
        said = produce("cancel", TOPIC, "n")
        if said == "cancelled\n":
            break
        # Its first try was not answered within a second, and the next one found the timer cancelled.
        assert said == "there is no such timer\n"
    assert said == "cancelled\n"
    assert produce("cancel", TOPIC, "n") == "there is no such timer\n"
    stage.wait_empty(TOPIC, dead=1)
    eventually(lambda: len(process.reminded()) >= 4, "it has printed them", START_TIMEOUT)
    assert process.reminded() == [
        f"{TOPIC}/f: flaky (attempt 1)",
        f"{TOPIC}/f: flaky (attempt 2)",
        f"{TOPIC}/tea: Ostfriesentee ☕ (attempt 1)",
        f"{TOPIC}/w: wrong (attempt 1)",
    ]
    assert process.terminate() == 0
    wrong = output([*command, "nonsense"], where)
    assert (wrong.returncode, wrong.stdout) == (USAGE, "")
    assert wrong.stderr.startswith("usage: ")
