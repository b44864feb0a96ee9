import assert from "node:assert/strict";
import { test } from "node:test";
import * as grpc from "@grpc/grpc-js";
import { duration, micros } from "./api.js";
import { type Delivery, Nack, Reject, Reschedule, outcomeOf } from "./handling.js";
import { repeated, retryInfo } from "./producer.js";

const delivery = { topic: "t", timerId: "a" } as Delivery;

/** What a relay sends whose Redis is away: RetryInfo of this many milliseconds. */
function away(ms: number): grpc.ServiceError {
  const inner = (tag: number, bytes: Buffer) => Buffer.concat([Buffer.from([tag, bytes.length]), bytes]);
  const nanos = ms * 1e6;
  const varint: number[] = [];
  for (let left = nanos; ; left = Math.floor(left / 128)) {
    varint.push(left >= 128 ? (left % 128) + 128 : left);
    if (left < 128) break;
  }
  const info = inner(0x0a, Buffer.from([0x10, ...varint]));
  const any = Buffer.concat([inner(0x0a, Buffer.from("type.googleapis.com/google.rpc.RetryInfo")), inner(0x12, info)]);
  const metadata = new grpc.Metadata();
  metadata.set("grpc-status-details-bin", Buffer.concat([Buffer.from([0x08, 14]), inner(0x12, Buffer.from("away")), inner(0x1a, any)]));
  return failure(grpc.status.UNAVAILABLE, metadata);
}

function failure(code: grpc.status, metadata = new grpc.Metadata()): grpc.ServiceError {
  return Object.assign(new Error("as made"), { code, details: "as made", metadata });
}

/** When the calls came, if the first ends with this error. */
async function calls(first: grpc.ServiceError): Promise<number[]> {
  const at: number[] = [];
  await repeated(60_000, async () => {
    at.push(performance.now());
    if (at.length === 1) throw first;
    return true;
  });
  return at;
}

test("a handler's end is the outcome", async () => {
  const ends: [unknown, object][] = [
    [undefined, { outcome: "OUTCOME_ACK" }],
    [new Nack("busy", { pauseMs: 1500 }), { outcome: "OUTCOME_NACK", reason: "busy", retryAfter: { seconds: 1, nanos: 500_000_000 } }],
    [new Nack("", { final: true }), { outcome: "OUTCOME_NACK", reason: "", retryable: false }],
    [new Reject("no such customer"), { outcome: "OUTCOME_REJECT", reason: "no such customer" }],
    [new Reschedule(60_000), { outcome: "OUTCOME_RESCHEDULE", reschedule: { delay: { seconds: 60, nanos: 0 } } }],
    [new TypeError("secret"), { outcome: "OUTCOME_NACK", reason: "TypeError" }],
  ];
  for (const [end, outcome] of ends) {
    const handler = () => {
      if (end !== undefined) throw end;
    };
    assert.deepEqual(await outcomeOf(handler, delivery), outcome);
  }
});

test("times keep their microseconds", () => {
  assert.equal(micros({ seconds: 1_767_225_605, nanos: 1999 }), 1_767_225_605_000_001n);
  assert.deepEqual(duration(0.0001), { seconds: 0, nanos: 1000 });
  assert.throws(() => duration(-1), RangeError);
});

test("after the relay's answer the next try waits for RetryInfo", async () => {
  assert.equal(retryInfo(away(300).metadata), 300);
  const [first = 0, second = 0] = await calls(away(300));
  assert.ok(second - first >= 295, `${second - first} ms`);
});

for (const code of [grpc.status.UNAVAILABLE, grpc.status.CANCELLED]) {
  test(`without an answer (${grpc.status[code]}) the next try waits for the deadline`, async () => {
    const [first = 0, second = 0] = await calls(failure(code));
    assert.ok(second - first >= 990, `${second - first} ms`);
  });
}

test("what is final is not repeated", async () => {
  await assert.rejects(calls(failure(grpc.status.INVALID_ARGUMENT)), { code: grpc.status.INVALID_ARGUMENT });
});
