// Schedules by one client until it has been let in, refused, and let in again; says each once.

import { setTimeout as sleep } from "node:timers/promises";
import { Producer } from "../../examples/javascript/relay.mjs";

const producer = new Producer();
let refused = false;
let last = "";

/** Schedule once; the words for what became of it. */
async function tried() {
  try {
    await producer.schedule({ topic: "reminders", timerId: "tea", delayMs: 3_600_000 });
    return refused ? "scheduled again" : "scheduled";
  } catch (error) {
    refused = true;
    return `refused: ${error.details}`;
  }
}

while (last !== "scheduled again") {
  const now = await tried();
  if (now !== last) console.log(now);
  last = now;
  await sleep(50);
}
producer.close();
