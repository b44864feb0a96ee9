// What both ways of delivery share: the API, its times, a handler's outcome. It has the producer, too.

import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import grpc from "@grpc/grpc-js";
import { loadSync } from "@grpc/proto-loader";
import { dial } from "./credentials.mjs";

/** The folder of Relay's .proto files. Copy it into your application, and name it here. */
const PROTO = fileURLToPath(new URL("../../proto", import.meta.url));

export const TARGET = process.env.RELAY_TARGET || "127.0.0.1:7451";

/** The services of `relay.v1`. Fields are in camelCase, enums are strings, bytes are Buffers. */
export const api = grpc.loadPackageDefinition(
  loadSync(
    ["delivery_service", "timer_handler", "timer_service"].map((name) => `relay/v1/${name}.proto`),
    // The API's only 64-bit fields are seconds, which a double holds exactly.
    { includeDirs: [PROTO], longs: Number, enums: String, defaults: true, oneofs: true },
  ),
).relay.v1;

/** Options of a client's channel to the relay beside it. */
export const CHANNEL = {
  // A frame has about 2 MiB, and one big payload may have more; the relay bounds it, not gRPC's 4 MiB.
  "grpc.max_receive_message_length": -1,
  // gRPC by itself stops dialling for up to two minutes: longer than a relay takes to restart.
  "grpc.initial_reconnect_backoff_ms": 100,
  "grpc.max_reconnect_backoff_ms": 2000,
  "grpc.enable_http_proxy": 0,
};

// ---------------------------------------------------------------- times

/** A Timestamp from a Date, or from microseconds since 1970 as a bigint: a Date knows milliseconds only. */
export function timestamp(instant) {
  const micros = instant instanceof Date ? BigInt(instant.getTime()) * 1000n : instant;
  return { seconds: Number(micros / 1_000_000n), nanos: Number(micros % 1_000_000n) * 1000 };
}

/** Microseconds since 1970 as a bigint; due times are whole ones. */
export function micros({ seconds, nanos }) {
  return BigInt(seconds) * 1_000_000n + BigInt(Math.floor(nanos / 1000));
}

/** A Duration from milliseconds, rounded up to whole microseconds. */
export function duration(ms) {
  if (!(ms >= 0 && ms < Infinity)) throw new RangeError(`${ms} is no length of time; give 0 ms or more`);
  const whole = Math.ceil(ms * 1000);
  return { seconds: Math.floor(whole / 1e6), nanos: (whole % 1e6) * 1000 };
}

/** Endless pauses in milliseconds, each from the upper half of a span that doubles up to `longest`. */
export function* pauses(first, longest) {
  for (let span = first; ; span = Math.min(2 * span, longest)) yield span * (0.5 + Math.random() / 2);
}

// ------------------------------------------------------------- handlers

/** Throw it to fail a delivery: the timer comes again after `retryAfterMs`, or as the retry policy says. */
export class Nack extends Error {
  constructor(reason = "", { retryAfterMs } = {}) {
    super(reason);
    if (retryAfterMs !== undefined) this.retryAfter = duration(retryAfterMs);
  }
}

/** Throw it if a retry would not help: the timer is dead, and the relay logs the reason. */
export class Reject extends Error {}

/**
 * What a handler gets: the message, with times as a Date and to the microsecond.
 *
 * `extend` says that the work goes on. `signal` aborts when the lease is lost: the outcome is void then.
 */
export function toDelivery(message, signal, extend) {
  const dueMicros = micros(message.dueTime);
  return { ...message, dueMicros, dueTime: new Date(Number(dueMicros / 1000n)), signal, extend };
}

/** Call the handler; its end is the outcome. To return is ACK, to throw anything but Reject is NACK. */
export async function outcomeOf(handler, delivery) {
  try {
    await handler(delivery);
    return { outcome: "OUTCOME_ACK" };
  } catch (error) {
    if (error instanceof Reject) return { outcome: "OUTCOME_REJECT", reason: error.message };
    if (error instanceof Nack) {
      return { outcome: "OUTCOME_NACK", reason: error.message, retryAfter: error.retryAfter };
    }
    console.error(`${delivery.topic}/${delivery.timerId} failed:`, error);
    return { outcome: "OUTCOME_NACK", reason: error?.name ?? "error" }; // no message: it may quote the payload
  }
}

// ------------------------------------------------------------- producer

/** Milliseconds that the first try of a call may take. */
const TRY_MS = 1000;

/** Whether a failed call can't act any more: the relay says so, or there was no connection to send it on. */
function isFinal(error) {
  const byRelay = error.metadata.get("grpc-status-details-bin").length > 0;
  return byRelay || /^(No connection established|Name resolution failed)/.test(error.details);
}

/** Schedules and cancels. When a call returns, the timer is stored. An error's `code` is a `grpc.status`. */
export class Producer {
  #client;
  #timeoutMs;

  constructor(target = TARGET, { timeoutMs = 10_000 } = {}) {
    this.#client = new api.TimerService(target, ...dial(target, CHANNEL));
    this.#timeoutMs = timeoutMs;
  }

  /**
   * Store a timer, or replace the one with that id. Give `delayMs`, or `dueTime` as `timestamp` takes it.
   *
   * The id is made here if none is given, so a repeated call is about the same timer, not a second one.
   */
  schedule({ timerId = randomUUID(), payload = "", dueTime, delayMs, ...rest }) {
    const timer = { ...rest, timerId, payload: Buffer.from(payload) }; // a string would be read as base64
    if (dueTime !== undefined) timer.dueTime = timestamp(dueTime);
    if (delayMs !== undefined) timer.delay = duration(delayMs);
    return this.#call("schedule", { timer });
  }

  /** Remove a timer, even while it is being delivered; resolves to whether there was one. */
  async cancel(topic, timerId) {
    return (await this.#call("cancel", { topic, timerId })).cancelled;
  }

  close() {
    this.#client.close();
  }

  /**
   * Call, and repeat the call while the relay or its Redis is away: it names its timer, so it may be repeated.
   *
   * But a try without an answer may act until its deadline, and undo what came after it. So each try has a short
   * deadline, and what comes next, another try or an error, waits for the relay's answer or for that deadline.
   * The relay counts it from when the call arrives: grpc-js writes it before it has a connection. So the wait begins with
   * the failure.
   */
  async #call(method, request) {
    const end = Date.now() + this.#timeoutMs;
    let life = TRY_MS;
    for (const pause of pauses(50, 2000)) {
      const mine = Math.min(life, end - Date.now());
      try {
        return await this.#callOnce(method, request, Date.now() + mine);
      } catch (error) {
        if (error.code !== grpc.status.UNAVAILABLE && error.code !== grpc.status.DEADLINE_EXCEEDED) throw error;
        const wait = isFinal(error) ? pause : mine;
        if (isFinal(error) && Date.now() + wait >= end) throw error;
        await sleep(wait);
        if (Date.now() >= end) throw error;
        if (error.code === grpc.status.DEADLINE_EXCEEDED) life *= 2; // a slow relay gets more time
      }
    }
  }

  #callOnce(method, request, deadline) {
    return new Promise((resolve, reject) => {
      this.#client[method](request, { deadline }, (error, response) => {
        if (error) reject(error);
        else resolve(response);
      });
    });
  }
}
