// Delivery by stream: the application dials the relay. See docs/reference/protocol.md for what is said.

import { setTimeout as sleep } from "node:timers/promises";
import grpc from "@grpc/grpc-js";
import { dial } from "./credentials.mjs";
import { CHANNEL, TARGET, api, outcomeOf, pauses, toDelivery } from "./relay.mjs";

/** Without gRPC's buffer for retries, a write calls back once it is on its way, and not before. */
const UNBUFFERED = { ...CHANNEL, "grpc.per_rpc_retry_buffer_size": 0 };

/** The most receipts, and the most outcomes, that go into one message. */
const FRAME = 500;

/** A retry does not help after these: the Open is wrong, the caller may not do this, or it is not a relay. */
const FATAL = new Set(
  ["INVALID_ARGUMENT", "UNAUTHENTICATED", "PERMISSION_DENIED", "UNIMPLEMENTED"].map((name) => grpc.status[name]),
);

/** Problems after which an outcome is void. */
const VOID = new Set(["PROBLEM_REASON_STALE", "PROBLEM_REASON_GONE", "PROBLEM_REASON_UNKNOWN_TOKEN"]);

/**
 * Handle the timers of some topics until `signal` aborts, at most `maxOutstanding` at a time.
 *
 * It opens the stream again whenever the relay has gone. In the end it drains: running handlers have `graceMs`.
 */
export async function serveStream({ topics, maxOutstanding = 100, target = TARGET, signal, graceMs = 20_000 }, handler) {
  const client = new api.DeliveryService(target, ...dial(target, UNBUFFERED));
  let backoff = pauses(100, 5000);
  try {
    while (!signal.aborted) {
      const session = new Session(client.deliver(), handler);
      const status = await session.run({ topics, maxOutstanding }, signal, graceMs);
      if (FATAL.has(status.code)) throw new Error(`the relay refuses: ${status.details}`);
      if (signal.aborted) break;
      console.error(`the stream has ended (${grpc.status[status.code]}: ${status.details}), opening it again`);
      if (session.opened) backoff = pauses(100, 5000);
      await sleep(backoff.next().value, undefined, { signal }).catch(() => {});
    }
  } finally {
    client.close();
  }
}

/** One stream, from its Open to its end. */
class Session {
  opened = false;
  #call;
  #handler;
  #running = new Map(); // by token: what has come and is not settled
  #starting = []; // whose receipts are to be written
  #settlements = [];
  #scheduled = false;
  #writing = false;
  #draining = false;
  #over = false;

  constructor(call, handler) {
    this.#call = call;
    this.#handler = handler;
  }

  /** Resolves to the status with which the relay ended it. */
  async run(open, signal, graceMs) {
    let timeout;
    const stop = () => {
      this.#drain({ tell: true });
      timeout = setTimeout(() => this.#call.cancel(), graceMs);
    };
    const ended = new Promise((resolve) => this.#call.on("status", resolve));
    this.#call.on("error", () => {}); // the status says it too
    this.#call.on("data", (response) => this.#hear(response));
    this.#call.write({ open });
    signal.addEventListener("abort", stop);
    const status = await ended;
    signal.removeEventListener("abort", stop);
    clearTimeout(timeout);
    this.#over = true;
    for (const { lost } of this.#running.values()) lost.abort();
    return status;
  }

  #hear(response) {
    switch (response.message) {
      case "opened":
        this.opened = true;
        console.error("the stream is open");
        break;
      case "deliveries":
        // A delivery that crosses a Drain on its way is left alone: without a receipt it costs no attempt.
        if (!this.#draining) response.deliveries.deliveries.forEach((message) => this.#take(message));
        break;
      case "problems":
        response.problems.problems.forEach((problem) => this.#report(problem));
        break;
      case "drain":
        this.#drain({ tell: false });
    }
  }

  #take(message) {
    const key = message.token.toString("hex");
    const lost = new AbortController();
    const extend = () => this.#settle({ token: message.token, outcome: "OUTCOME_EXTEND" });
    const entry = { key, lost, delivery: toDelivery(message, lost.signal, extend) };
    this.#running.set(key, entry);
    this.#starting.push(entry);
    this.#writeSoon();
  }

  /** The relay has the receipt by now, or will have it. */
  async #handle({ key, delivery }) {
    const outcome = await outcomeOf(this.#handler, delivery);
    this.#running.delete(key);
    this.#settle({ token: delivery.token, ...outcome });
  }

  #settle(settlement) {
    this.#settlements.push(settlement);
    this.#writeSoon();
  }

  #report({ token, reason, message }) {
    const entry = this.#running.get(token.toString("hex"));
    console.error(`the relay took no outcome of ${entry?.delivery.timerId ?? "an ended delivery"}: ${message}`);
    if (VOID.has(reason)) entry?.lost.abort();
  }

  /** Begin nothing new. When all running deliveries are settled, end our side. */
  #drain({ tell }) {
    if (this.#draining) return;
    this.#draining = true;
    if (tell) this.#call.write({ drain: {} });
    this.#writeSoon();
  }

  /** All messages of this turn of the event loop, or of the time of the last write, become one. */
  #writeSoon() {
    if (this.#scheduled) return;
    this.#scheduled = true;
    setImmediate(() => {
      this.#scheduled = false;
      this.#write();
    });
  }

  #write() {
    if (this.#writing || this.#over) return;
    const starting = this.#starting.splice(0, FRAME);
    const settlements = this.#settlements.splice(0, FRAME);
    if (starting.length === 0 && settlements.length === 0) {
      if (this.#draining && this.#running.size === 0) this.#call.end();
      return;
    }
    const received = starting.map(({ delivery }) => delivery.token);
    this.#writing = true;
    this.#call.write({ settle: { received, settlements } }, () => {
      this.#writing = false;
      if (this.#over) return; // a handler whose receipt is lost must not start
      starting.forEach((entry) => this.#handle(entry));
      this.#write();
    });
  }
}
