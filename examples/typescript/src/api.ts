// The API, its types, and its times. `npm run build` generates the types; the protos are read as the program starts.

import { fileURLToPath } from "node:url";
import * as grpc from "@grpc/grpc-js";
import { loadSync } from "@grpc/proto-loader";
import type { ProtoGrpcType as DeliveryApi } from "./api/delivery_service.js";
import type { ProtoGrpcType as HandlerApi } from "./api/timer_handler.js";
import type { ProtoGrpcType as TimerApi } from "./api/timer_service.js";
import type { Duration } from "./api/google/protobuf/Duration.js";
import type { Timestamp__Output } from "./api/google/protobuf/Timestamp.js";

/** The folder of Relay's protos. Copy it into your application, and name it here. */
const PROTO = process.env.RELAY_PROTO ?? fileURLToPath(new URL("../../../proto", import.meta.url));

type Services = DeliveryApi["relay"]["v1"] & HandlerApi["relay"]["v1"] & TimerApi["relay"]["v1"];

/** The services of `relay.v1`. The options are those with which package.json generates the types. */
export const api = (
  grpc.loadPackageDefinition(
    loadSync(
      ["delivery_service", "timer_handler", "timer_service"].map((name) => `relay/v1/${name}.proto`),
      { includeDirs: [PROTO], longs: Number, enums: String, defaults: true, oneofs: true },
    ),
  ) as unknown as { relay: { v1: Services } }
).relay.v1;

/** Options of a channel to the relay beside this application. */
export const CHANNEL: grpc.ChannelOptions = {
  "grpc.max_receive_message_length": -1, // the relay bounds messages, not gRPC's 4 MiB
  "grpc.initial_reconnect_backoff_ms": 100,
  "grpc.max_reconnect_backoff_ms": 2000, // by itself gRPC waits up to two minutes
  "grpc.enable_http_proxy": 0,
};

/** Microseconds since 1970, which a Date can't hold. */
export function micros(at: Timestamp__Output): bigint {
  return BigInt(at.seconds) * 1_000_000n + BigInt(Math.floor(at.nanos / 1000));
}

/** A Duration from milliseconds, rounded up to whole microseconds. */
export function duration(ms: number): Duration {
  if (!(ms >= 0 && ms < Infinity)) throw new RangeError(`${ms} is not a length of time; give 0 ms or more`);
  const whole = Math.ceil(ms * 1000);
  return { seconds: Math.floor(whole / 1e6), nanos: (whole % 1e6) * 1000 };
}

/** Endless pauses in milliseconds, each from the upper half of a span that doubles up to `longest`. */
export function* pauses(first: number, longest: number): Generator<number, never> {
  for (let span = first; ; span = Math.min(2 * span, longest)) yield span * (0.5 + Math.random() / 2);
}
