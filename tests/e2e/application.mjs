// The application that end-to-end tests run on the JavaScript example. Each payload says what to do with it:
//
// {"sleep": 0.5}         work that long;  {"sleep": 5, "extend": 0.2}  and EXTEND every 0.2 s
// {"nack_until": 3}      fail until attempt 3;  {"retry_after": 1}  with that delay
// {"throw_until": 3}     the same by an Error;  {"reject": true}  refuse for good
// {"gate": "/a/path"}    work until that file is there; with "extend" as above
// {"die_until": 2}       SIGKILL this process at the handler's end, until attempt 2
//
// Anything else is handled at once. Start and end of every handler go to the journal of the test.

import { createHash } from "node:crypto";
import { appendFileSync, existsSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { servePush } from "../../examples/javascript/push.mjs";
import { Nack, Reject } from "../../examples/javascript/relay.mjs";
import { serveStream } from "../../examples/javascript/stream.mjs";

const one = { type: "string" };
const { values } = parseArgs({
  options: { events: one, target: one, topic: one, listen: one, "max-outstanding": one, grace: one },
});

function write(event, fields = {}) {
  const line = JSON.stringify({ event, at: Date.now() / 1000, pid: process.pid, ...fields });
  appendFileSync(values.events, `${line}\n`);
}

function asked(payload) {
  try {
    const asks = JSON.parse(payload);
    return asks instanceof Object ? asks : {};
  } catch {
    return {};
  }
}

async function handle(delivery) {
  const asks = asked(delivery.payload);
  const fields = {
    topic: delivery.topic,
    timer_id: delivery.timerId,
    attempt: delivery.attempt,
    occurrence: delivery.occurrenceId,
    headers: delivery.headers,
    content_type: delivery.contentType,
    due_time: String(delivery.dueMicros),
    sha256: createHash("sha256").update(delivery.payload).digest("hex"),
  };
  delivery.signal.addEventListener("abort", () => write("lost", fields));
  write("start", fields);
  const end = Date.now() + 1000 * (asks.sleep ?? 0);
  for (let left; (left = end - Date.now()) > 0; ) {
    await sleep(Math.min(left, 1000 * (asks.extend ?? Infinity)));
    if (asks.extend) delivery.extend();
  }
  while (asks.gate && !existsSync(asks.gate)) {
    await sleep(1000 * (asks.extend ?? 0.02));
    if (asks.extend) delivery.extend();
  }
  if (delivery.attempt < asks.die_until) process.kill(process.pid, "SIGKILL");
  write("end", fields);
  if (delivery.attempt < asks.nack_until) {
    throw new Nack("as asked", "retry_after" in asks ? { retryAfterMs: 1000 * asks.retry_after } : {});
  }
  if (delivery.attempt < asks.throw_until) throw new Error("as asked");
  if (asks.reject) throw new Reject("as asked");
}

const stopping = new AbortController();
process.once("SIGTERM", () => {
  stopping.abort();
  write("stopping");
});
const options = { signal: stopping.signal, graceMs: 1000 * Number(values.grace ?? 20) };
if (values.listen) {
  await servePush({ ...options, listen: values.listen, topics: [values.topic] }, handle);
} else {
  const maxOutstanding = Number(values["max-outstanding"] ?? 100);
  await serveStream({ ...options, target: values.target, topics: [values.topic], maxOutstanding }, handle);
}
write("stopped");
