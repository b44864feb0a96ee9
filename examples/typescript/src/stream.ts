// Delivery by stream: the application dials the relay.

import { setTimeout as sleep } from "node:timers/promises";
import * as grpc from "@grpc/grpc-js";
import { CHANNEL, api, pauses } from "./api.js";
import type { Handler } from "./handling.js";
import { Session } from "./session.js";

/** Without gRPC's buffer for retries a write calls back once it is on its way, and not before. */
const UNBUFFERED = { ...CHANNEL, "grpc.per_rpc_retry_buffer_size": 0 };

/** A retry does not help after these. */
const FATAL = new Set([
  grpc.status.INVALID_ARGUMENT,
  grpc.status.UNAUTHENTICATED,
  grpc.status.PERMISSION_DENIED,
  grpc.status.UNIMPLEMENTED,
]);

export interface StreamOptions {
  target: string;
  topics: string[];
  /** How many deliveries are held, and how many handlers run, at a time. */
  places: number;
  signal: AbortSignal;
  /** Milliseconds that running handlers have, once the signal has aborted. */
  graceMs?: number;
  credentials?: grpc.ChannelCredentials;
}

/** Handle due timers until the signal aborts, and open the stream again whenever the relay has gone; then drain. */
export async function serveStream(options: StreamOptions, handler: Handler): Promise<void> {
  const { target, topics, places, signal, graceMs = 20_000 } = options;
  const credentials = options.credentials ?? grpc.credentials.createInsecure();
  const client = new api.DeliveryService(target, credentials, UNBUFFERED);
  let backoff = pauses(100, 5000);
  try {
    while (!signal.aborted) {
      const session = new Session(client.deliver(), places, handler);
      const status = await untilItsEnd(session, topics, signal, graceMs);
      if (FATAL.has(status.code)) throw new Error(`the relay refuses the stream: ${status.details}`);
      if (signal.aborted) break;
      if (session.opened) backoff = pauses(100, 5000);
      console.error(`the stream has ended (${grpc.status[status.code]}: ${status.details}), opening it again`);
      await sleep(backoff.next().value, undefined, { signal }).catch(() => {});
    }
  } finally {
    client.close();
  }
}

async function untilItsEnd(session: Session, topics: string[], signal: AbortSignal, graceMs: number) {
  let timeout: NodeJS.Timeout | undefined;
  const stop = () => {
    session.drain({ tell: true });
    timeout = setTimeout(() => session.call.cancel(), graceMs);
  };
  signal.addEventListener("abort", stop);
  try {
    return await session.run(topics);
  } finally {
    signal.removeEventListener("abort", stop);
    clearTimeout(timeout);
  }
}
