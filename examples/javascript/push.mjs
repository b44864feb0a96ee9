// Delivery by push: the application serves TimerHandler, and the relay dials it. See docs/how-to/push.md.

import { once } from "node:events";
import { rm } from "node:fs/promises";
import { setImmediate, setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import grpc from "@grpc/grpc-js";
import { HealthImplementation } from "grpc-health-check";
import { api, outcomeOf, toDelivery } from "./relay.mjs";

/** Milliseconds in which the relay learns that this application is NOT_SERVING. */
const HEARD_MS = 200;

/** The initial metadata of a call that says that its handler starts: from then on the attempt counts. */
const RECEIPT = new grpc.Metadata();
RECEIPT.set("relay-receipt", "1");

/**
 * Handle what the relay pushes until `signal` aborts; `listen` is `host:port` or `unix:/path`. What is pushed of a topic that
 * is not in `topics` waits until somebody handles it.
 *
 * In the end the health service says NOT_SERVING, and running handlers have `graceMs`.
 */
export async function servePush({ listen = "127.0.0.1:50051", topics, signal, graceMs = 20_000 }, handler) {
  const server = new grpc.Server({ "grpc.max_receive_message_length": -1 }); // max_payload_bytes bounds it
  const health = new HealthImplementation({ "": "SERVING" });
  health.addToServer(server);
  server.addService(api.TimerHandler.service, {
    async deliver(call, answer) {
      const { topic } = call.request.delivery;
      if (!topics.includes(topic)) return answer({ code: grpc.status.UNIMPLEMENTED, details: `topic ${topic} has no handler here` });
      call.sendMetadata(RECEIPT);
      await setImmediate(); // on its way: if the handler kills this process, the relay knows that it had started
      const lost = new AbortController();
      call.on("cancelled", () => lost.abort());
      const extend = () => {}; // a call has `delivery_timeout`, all of it
      answer(null, await outcomeOf(handler, toDelivery(call.request.delivery, lost.signal, extend)));
    },
  });
  // A killed process leaves its socket behind, and nobody could listen there again.
  if (listen.startsWith("unix:")) await rm(listen.slice("unix:".length), { force: true });
  await promisify(server.bindAsync.bind(server))(listen, grpc.ServerCredentials.createInsecure());
  console.error(`serving on ${listen}`);

  if (!signal.aborted) await once(signal, "abort");
  health.setStatus("", "NOT_SERVING");
  await sleep(HEARD_MS);
  const timeout = setTimeout(() => server.forceShutdown(), graceMs);
  await promisify(server.tryShutdown.bind(server))();
  clearTimeout(timeout);
}
