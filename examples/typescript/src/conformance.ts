// This client as `relay conformance` wants it: it does what a delivery's payload says.

import { existsSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { type Delivery, Nack, Reject, Reschedule } from "./handling.js";
import { Producer } from "./producer.js";
import { servePush } from "./push.js";
import { serveStream } from "./stream.js";

const GATE_MS = 20;

async function gate(path: string): Promise<void> {
  while (!existsSync(path)) await sleep(GATE_MS);
}

function told(one: Delivery): string {
  const { timerId, attempt, dueMicros, occurrenceId, contentType, headers, payload } = one;
  return [timerId, attempt, dueMicros, occurrenceId, contentType, headers.ort ?? "", payload.toString("hex")].join("|");
}

/** Do what the first word says, with what stands behind it. */
async function handle(delivery: Delivery): Promise<void> {
  const [word, ...more] = delivery.payload.toString().trim().split(" ");
  const text = more.join(" ");
  switch (word) {
    case "ack":
      return;
    case "nack":
      throw new Nack("", text ? { pauseMs: Number(text) } : {});
    case "final":
      throw new Nack("", { final: true });
    case "error":
      throw new Error(text);
    case "reject":
      throw new Reject(text);
    case "reschedule":
      throw new Reschedule(Number(text));
    case "extend":
      delivery.extend();
      return gate(text);
    case "hold":
      return gate(text);
    case "freeze":
      process.kill(process.pid, "SIGSTOP");
      return;
    case "tell":
      throw new Reject(told(delivery));
    default:
      throw new Reject(`the suite has no word ${word}`);
  }
}

const target = process.env.RELAY_TARGET ?? "";
const [role, topic = "", first = "", delay = "", payload = ""] = process.argv.slice(2);
const stopping = new AbortController();
const { signal } = stopping;
process.once("SIGTERM", () => stopping.abort());
if (role === "handle") await serveStream({ target, topics: [topic], places: Number(first), signal }, handle);
else if (role === "push") await servePush({ address: first, topics: [topic], signal }, handle);
else {
  const producer = new Producer(target, { timeoutMs: 30_000 });
  await producer.schedule({ topic, timerId: first, delayMs: Number(delay), payload });
  producer.close();
}
