// An application on Relay: it sets reminders, cancels them, and prints them as they fall due.

import { type Delivery, Nack, Reject } from "./handling.js";
import { Producer } from "./producer.js";
import { servePush } from "./push.js";
import { serveStream } from "./stream.js";

const USAGE = `usage: node dist/main.js stream TOPIC | push ADDRESS TOPIC | schedule TOPIC ID DELAY_MS TEXT | cancel TOPIC ID
RELAY_TARGET names the relay; without it, 127.0.0.1:7451.`;

const target = process.env.RELAY_TARGET || "127.0.0.1:7451";
const stopping = new AbortController();
for (const name of ["SIGTERM", "SIGINT"]) process.once(name, () => stopping.abort());
const { signal } = stopping;

/** It may be called twice for one timer: `occurrenceId` is the key that makes the work idempotent. */
function remind({ topic, timerId, payload, attempt }: Delivery): void {
  const text = payload.toString();
  console.log(`${topic}/${timerId}: ${text} (attempt ${attempt})`);
  if (text === "flaky" && attempt === 1) throw new Nack("not today", { pauseMs: 500 });
  if (text === "wrong") throw new Reject("nobody can do this");
}

async function schedule(topic: string, timerId: string, delayMs: number, payload: string): Promise<void> {
  const producer = new Producer(target);
  try {
    await producer.schedule({ topic, timerId, delayMs, payload, contentType: "text/plain; charset=utf-8" });
    console.log(`${topic}/${timerId} is due in ${delayMs} ms`);
  } finally {
    producer.close();
  }
}

async function cancel(topic: string, timerId: string): Promise<void> {
  const producer = new Producer(target);
  try {
    console.log((await producer.cancel(topic, timerId)) ? "cancelled" : "there is no such timer");
  } finally {
    producer.close();
  }
}

const [verb, first, second, third, fourth] = process.argv.slice(2);
if (verb === "stream" && first) await serveStream({ target, topics: [first], places: 100, signal }, remind);
else if (verb === "push" && first && second) await servePush({ address: first, topics: [second], signal }, remind);
else if (verb === "schedule" && first && second && Number(third) >= 0 && fourth !== undefined) {
  await schedule(first, second, Number(third), fourth);
} else if (verb === "cancel" && first && second) await cancel(first, second);
else {
  console.error(USAGE);
  process.exitCode = 2;
}
