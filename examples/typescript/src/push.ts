// Delivery by push: the application serves TimerHandler, and the relay dials it.

import { once } from "node:events";
import { rm } from "node:fs/promises";
import { setImmediate, setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import * as grpc from "@grpc/grpc-js";
import { HealthImplementation } from "grpc-health-check";
import type { TimerHandlerHandlers } from "./api/relay/v1/TimerHandler.js";
import { api } from "./api.js";
import { type Handler, outcomeOf, toDelivery } from "./handling.js";

/** Milliseconds in which the relay learns that this application is NOT_SERVING. */
const HEARD_MS = 200;

export interface PushOptions {
  /** `host:port` or `unix:/path`. */
  address: string;
  /** Those that the handler is for. What is pushed of others waits until somebody handles it. */
  topics: string[];
  signal: AbortSignal;
  graceMs?: number;
}

/** Handle what the relay pushes until the signal aborts. Then health says NOT_SERVING, and running calls have the grace. */
export async function servePush({ address, topics, signal, graceMs = 20_000 }: PushOptions, handler: Handler): Promise<void> {
  const server = new grpc.Server({ "grpc.max_receive_message_length": -1 }); // max_payload_bytes bounds it
  const health = new HealthImplementation({ "": "SERVING" });
  health.addToServer(server);
  const handlers: Partial<TimerHandlerHandlers> = {
    Deliver: async (call, answer) => {
      const { delivery } = call.request;
      if (!delivery) return answer({ code: grpc.status.INVALID_ARGUMENT, details: "delivery: is missing" });
      if (!topics.includes(delivery.topic)) {
        return answer({ code: grpc.status.UNIMPLEMENTED, details: `topic ${delivery.topic} has no handler here` });
      }
      const receipt = new grpc.Metadata();
      receipt.set("relay-receipt", "1"); // from now on the attempt counts
      call.sendMetadata(receipt);
      await setImmediate(); // it is on its way
      const lost = new AbortController();
      call.on("cancelled", () => lost.abort());
      answer(null, await outcomeOf(handler, toDelivery(delivery, lost.signal, () => {})));
    },
  };
  server.addService(api.TimerHandler.service, handlers as TimerHandlerHandlers); // DeliverBatch is UNIMPLEMENTED
  if (address.startsWith("unix:")) await rm(address.slice(5), { force: true }); // a killed process leaves it behind
  await promisify(server.bindAsync.bind(server))(address, grpc.ServerCredentials.createInsecure());
  console.error(`serving on ${address}`);
  if (!signal.aborted) await once(signal, "abort");
  health.setStatus("", "NOT_SERVING");
  await sleep(HEARD_MS);
  const timeout = setTimeout(() => server.forceShutdown(), graceMs);
  await promisify(server.tryShutdown.bind(server))();
  clearTimeout(timeout);
}
