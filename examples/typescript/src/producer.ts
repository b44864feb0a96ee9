// Schedule and Cancel, and when a call is made again.

import { setTimeout as sleep } from "node:timers/promises";
import * as grpc from "@grpc/grpc-js";
import type { CancelResponse__Output } from "./api/relay/v1/CancelResponse.js";
import type { ScheduleResponse__Output } from "./api/relay/v1/ScheduleResponse.js";
import { CHANNEL, api, duration, pauses } from "./api.js";

/** Milliseconds that the first try of a call may take. */
const FIRST_TRY_MS = 1000;

/** After these a try has no answer, or one that says when to try again. */
const OPEN = new Set([grpc.status.UNAVAILABLE, grpc.status.DEADLINE_EXCEEDED, grpc.status.CANCELLED]);

export interface NewTimer {
  topic: string;
  /** Your own name for it: a repeated call is about the same timer. */
  timerId: string;
  delayMs: number;
  payload: string | Uint8Array;
  headers?: Record<string, string>;
  contentType?: string;
}

type Callback<T> = (error: grpc.ServiceError | null, answer?: T) => void;

/** Schedules and cancels timers. When a call returns, it is stored. An error's `code` is a `grpc.status`. */
export class Producer {
  readonly #client;
  readonly #timeoutMs: number;

  constructor(target: string, { timeoutMs = 10_000, credentials = grpc.credentials.createInsecure() } = {}) {
    this.#client = new api.TimerService(target, credentials, CHANNEL);
    this.#timeoutMs = timeoutMs;
  }

  /** Store a timer, or replace the one with its id. */
  schedule({ delayMs, payload, ...rest }: NewTimer): Promise<ScheduleResponse__Output> {
    const timer = { ...rest, delay: duration(delayMs), payload: Buffer.from(payload) }; // a string would be read as base64
    return repeated(this.#timeoutMs, (deadline) =>
      promised((done) => this.#client.schedule({ timer }, { deadline }, done)),
    );
  }

  /** Remove a timer, even while it is being delivered; resolves to whether there was one. */
  async cancel(topic: string, timerId: string): Promise<boolean> {
    const answer = await repeated<CancelResponse__Output>(this.#timeoutMs, (deadline) =>
      promised((done) => this.#client.cancel({ topic, timerId }, { deadline }, done)),
    );
    return answer.cancelled;
  }

  close(): void {
    this.#client.close();
  }
}

function promised<T>(call: (done: Callback<T>) => unknown): Promise<T> {
  return new Promise((resolve, reject) =>
    call((error, answer) => (error || answer === undefined ? reject(error) : resolve(answer))),
  );
}

/**
 * Make a call again while the relay or its Redis is away.
 *
 * A try without an answer may act until its deadline, and would undo what came after it. So each try has a short
 * deadline, and what comes next, another try or an error, waits for the relay's answer or for that deadline. The relay
 * counts it from when the call arrives: grpc-js writes it before it has a connection. So the wait begins with the failure.
 */
export async function repeated<T>(timeoutMs: number, call: (deadline: number) => Promise<T>): Promise<T> {
  const end = Date.now() + timeoutMs;
  let life = FIRST_TRY_MS;
  for (const pause of pauses(50, 2000)) {
    const mine = Math.min(life, end - Date.now());
    try {
      return await call(Date.now() + mine);
    } catch (error) {
      const { code, metadata } = error as grpc.ServiceError;
      if (!OPEN.has(code)) throw error;
      const asked = retryInfo(metadata);
      const wait = asked === undefined ? mine : Math.max(asked, pause);
      if (asked !== undefined && Date.now() + wait >= end) throw error;
      await sleep(wait);
      if (Date.now() >= end) throw error;
      if (code === grpc.status.DEADLINE_EXCEEDED) life *= 2; // the relay may only be slow
    }
  }
  throw new Error("pauses never end");
}

/**
 * The milliseconds for which a relay asks by `google.rpc.RetryInfo`; undefined if no relay has answered.
 *
 * The detail is a `google.rpc.Status` in bytes. Its details are fields 3, each an `Any`: field 1 the type, field 2 the
 * message, whose field 1 is a Duration.
 */
export function retryInfo(metadata: grpc.Metadata | undefined): number | undefined {
  const [raw] = metadata?.get("grpc-status-details-bin") ?? [];
  if (!Buffer.isBuffer(raw)) return undefined;
  for (const [field, detail] of fields(raw)) {
    if (field !== 3 || !Buffer.isBuffer(detail)) continue;
    const any = new Map(fields(detail));
    const value = any.get(2);
    if (!String(any.get(1)).endsWith("/google.rpc.RetryInfo")) continue;
    const delay = Buffer.isBuffer(value) ? new Map(fields(value)).get(1) : undefined;
    const parts = new Map(Buffer.isBuffer(delay) ? fields(delay) : []);
    return Number(parts.get(1) ?? 0) * 1000 + Number(parts.get(2) ?? 0) / 1e6;
  }
  return undefined;
}

/** The fields of a message in protobuf: numbers, and bytes. */
function* fields(bytes: Buffer): Generator<[number, number | Buffer]> {
  let at = 0;
  const varint = () => {
    let value = 0;
    for (let scale = 1; ; scale *= 128) {
      const byte = bytes[at++] ?? 0;
      value += (byte & 0x7f) * scale;
      if (byte < 0x80) return value;
    }
  };
  while (at < bytes.length) {
    const key = varint();
    const kind = key % 8;
    if (kind === 0) yield [key >> 3, varint()];
    else if (kind === 2) {
      const length = varint();
      yield [key >> 3, bytes.subarray(at, (at += length))];
    } else at += kind === 1 ? 8 : 4;
  }
}
