// What a handler gets, and what its end becomes.

import type { Delivery__Output } from "./api/relay/v1/Delivery.js";
import type { Settlement } from "./api/relay/v1/Settlement.js";
import { duration, micros } from "./api.js";

/** One attempt at handing a timer to this application. It may come twice: `occurrenceId` is the same then. */
export interface Delivery extends Delivery__Output {
  /** When it fell due, in microseconds since 1970. */
  readonly dueMicros: bigint;
  /** Aborts when the lease is lost: the outcome is void then. */
  readonly signal: AbortSignal;
  /** Say that the work goes on, so that delivery_timeout starts over. It has no effect by push. */
  extend(): void;
}

/** To return is ACK. Nack, Reject and Reschedule say what they are called, and any other error is a NACK. */
export type Handler = (delivery: Delivery) => Promise<void> | void;

/** Fails a delivery: the timer comes again after `pauseMs`, or as the topic's retry policy says. */
export class Nack extends Error {
  readonly pauseMs: number | undefined;
  /** Whether another attempt is useless: the timer is dead then. */
  readonly final: boolean;

  constructor(reason = "", { pauseMs, final = false }: { pauseMs?: number; final?: boolean } = {}) {
    super(reason);
    this.pauseMs = pauseMs;
    this.final = final;
  }
}

/** Makes the timer dead, for a reason that the relay keeps. */
export class Reject extends Error {}

/** Makes the timer due again, as a new occurrence. */
export class Reschedule extends Error {
  constructor(readonly delayMs: number) {
    super(`in ${delayMs} ms`);
  }
}

export function toDelivery(message: Delivery__Output, signal: AbortSignal, extend: () => void): Delivery {
  return { ...message, dueMicros: micros(message.dueTime ?? { seconds: 0, nanos: 0 }), signal, extend };
}

/** Call the handler; its end is the outcome. */
export async function outcomeOf(handler: Handler, delivery: Delivery): Promise<Settlement> {
  try {
    await handler(delivery);
    return { outcome: "OUTCOME_ACK" };
  } catch (error) {
    return failed(error, delivery);
  }
}

function failed(error: unknown, delivery: Delivery): Settlement {
  if (error instanceof Reject) return { outcome: "OUTCOME_REJECT", reason: error.message };
  if (error instanceof Reschedule) {
    return { outcome: "OUTCOME_RESCHEDULE", reschedule: { delay: duration(error.delayMs) } };
  }
  if (error instanceof Nack) {
    return {
      outcome: "OUTCOME_NACK",
      reason: error.message,
      ...(error.pauseMs === undefined ? {} : { retryAfter: duration(error.pauseMs) }),
      ...(error.final ? { retryable: false } : {}),
    };
  }
  console.error(`${delivery.topic}/${delivery.timerId} failed:`, error);
  return { outcome: "OUTCOME_NACK", reason: error instanceof Error ? error.name : "error" }; // a message may quote the payload
}
