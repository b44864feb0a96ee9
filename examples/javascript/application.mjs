// An application. By stream: node application.mjs stream TOPIC …    By push: node application.mjs push ADDRESS TOPIC …

import { servePush } from "./push.mjs";
import { Nack, Reject } from "./relay.mjs";
import { serveStream } from "./stream.mjs";

/** It may be called twice for one timer: `occurrenceId` is the key that makes the work idempotent. */
async function remind(delivery) {
  const text = delivery.payload.toString();
  console.log(`${delivery.topic}/${delivery.timerId}: ${text} (attempt ${delivery.attempt})`);
  if (text === "flaky" && delivery.attempt === 1) throw new Nack("not today", { retryAfterMs: 500 });
  if (text === "wrong") throw new Reject("nobody can do this");
}

const stopping = new AbortController();
for (const name of ["SIGTERM", "SIGINT"]) process.once(name, () => stopping.abort());
const { signal } = stopping;

const [way, ...rest] = process.argv.slice(2);
if (way === "push" && rest.length > 1) await servePush({ listen: rest[0], topics: rest.slice(1), signal }, remind);
else if (way === "stream" && rest.length) await serveStream({ topics: rest, signal }, remind);
else {
  console.error("usage: node application.mjs stream TOPIC … | push ADDRESS TOPIC …");
  process.exitCode = 2;
}
