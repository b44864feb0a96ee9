// One stream, from its Open to its end. docs/reference/protocol.md says what is exchanged, and why.

import type { ClientDuplexStream, StatusObject } from "@grpc/grpc-js";
import type { DeliverRequest } from "./api/relay/v1/DeliverRequest.js";
import type { DeliverResponse__Output } from "./api/relay/v1/DeliverResponse.js";
import type { Delivery__Output } from "./api/relay/v1/Delivery.js";
import type { Problem__Output } from "./api/relay/v1/Problem.js";
import type { Settlement } from "./api/relay/v1/Settlement.js";
import { type Delivery, type Handler, outcomeOf, toDelivery } from "./handling.js";

/** The most receipts, and the most outcomes, that go into one message. */
const FRAME = 500;

interface Running {
  readonly delivery: Delivery;
  readonly lost: AbortController;
}

export class Session {
  opened = false;
  #waiting: Delivery__Output[] = []; // no place is free for them
  #running = new Map<string, Running>(); // by token: what has a place
  #starting: Running[] = []; // whose receipts are to be written
  #settlements: Settlement[] = [];
  #scheduled = false;
  #writing = false;
  #draining = false;
  #ended = false; // our side
  #over = false;

  constructor(
    readonly call: ClientDuplexStream<DeliverRequest, DeliverResponse__Output>,
    readonly places: number,
    readonly handler: Handler,
  ) {}

  /** Resolves to the status with which the relay ended the stream. */
  async run(topics: string[]): Promise<StatusObject> {
    const ended = new Promise<StatusObject>((resolve) => this.call.on("status", resolve));
    this.call.on("error", () => {}); // the status says it, too
    this.call.on("data", (response: DeliverResponse__Output) => this.#hear(response));
    this.call.write({ open: { topics, maxOutstanding: this.places } });
    const status = await ended;
    this.#over = true;
    for (const { lost } of this.#running.values()) lost.abort();
    return status;
  }

  /** Begin nothing new. When all that runs is settled, end our side. */
  drain({ tell }: { tell: boolean }): void {
    if (this.#draining) return;
    this.#draining = true;
    this.#waiting = [];
    if (tell) this.call.write({ drain: {} });
    this.#writeSoon();
  }

  /** Kinds of messages that are unknown come from a newer relay, and are left alone. */
  #hear(response: DeliverResponse__Output): void {
    if (response.opened) this.opened = true;
    else if (response.problems) response.problems.problems.forEach((problem) => this.#report(problem));
    else if (response.drain) this.drain({ tell: false });
    else if (response.deliveries && !this.#draining) {
      // What crosses a Drain on its way has no receipt, and costs no attempt.
      this.#waiting.push(...response.deliveries.deliveries);
      this.#begin();
    }
  }

  /** Give free places to what waits. Their handlers start once the receipts are written. */
  #begin(): void {
    while (this.#running.size < this.places) {
      const message = this.#waiting.shift();
      if (message === undefined) break;
      const lost = new AbortController();
      const extend = () => this.#settle({ token: message.token, outcome: "OUTCOME_EXTEND" });
      const one = { delivery: toDelivery(message, lost.signal, extend), lost };
      this.#running.set(message.token.toString("hex"), one);
      this.#starting.push(one);
    }
    this.#writeSoon();
  }

  async #handle({ delivery }: Running): Promise<void> {
    const outcome = await outcomeOf(this.handler, delivery);
    this.#running.delete(delivery.token.toString("hex"));
    this.#settle({ ...outcome, token: delivery.token });
    this.#begin();
  }

  #settle(settlement: Settlement): void {
    this.#settlements.push(settlement);
    this.#writeSoon();
  }

  #report({ token, reason, message }: Problem__Output): void {
    const one = this.#running.get(token.toString("hex"));
    console.error(`the relay took no outcome of ${one?.delivery.timerId ?? "an ended delivery"}: ${message}`);
    // Its outcome is sent all the same: until then it keeps its place.
    if (reason === "PROBLEM_REASON_STALE" || reason === "PROBLEM_REASON_GONE") one?.lost.abort();
  }

  /** All of this turn of the event loop, and of the time of the last write, becomes one message. */
  #writeSoon(): void {
    if (this.#scheduled) return;
    this.#scheduled = true;
    setImmediate(() => {
      this.#scheduled = false;
      this.#write();
    });
  }

  #write(): void {
    if (this.#writing || this.#over || this.#ended) return;
    const starting = this.#starting.splice(0, FRAME);
    const settlements = this.#settlements.splice(0, FRAME);
    if (starting.length + settlements.length === 0) {
      if (this.#draining && this.#running.size === 0) {
        this.#ended = true;
        this.call.end();
      }
      return;
    }
    const received = starting.map(({ delivery }) => delivery.token);
    this.#writing = true;
    this.call.write({ settle: { received, settlements } }, () => {
      this.#writing = false;
      if (this.#over) return; // a handler whose receipt is lost must not start
      for (const one of starting) void this.#handle(one);
      this.#write();
    });
  }
}
