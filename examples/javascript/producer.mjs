// Schedules and cancels:
//   node producer.mjs schedule TOPIC TEXT [--id ID] [--in MILLISECONDS | --at 2030-01-31T09:00:00Z]
//   node producer.mjs cancel TOPIC ID

import { parseArgs } from "node:util";
import { Producer, micros } from "./relay.mjs";

const text = { type: "string" };
const { positionals, values } = parseArgs({ allowPositionals: true, options: { id: text, in: text, at: text } });
const [verb, topic, subject] = positionals;

const producer = new Producer();
try {
  if (verb === "schedule" && subject !== undefined) {
    const when = values.at ? { dueTime: new Date(values.at) } : { delayMs: Number(values.in ?? 0) };
    const { timer, replaced } = await producer.schedule({
      topic,
      timerId: values.id,
      payload: subject,
      contentType: "text/plain; charset=utf-8",
      ...when,
    });
    const due = micros(timer.dueTime);
    console.log(`${replaced ? "rescheduled" : "scheduled"} ${topic}/${timer.timerId} for ${due} µs since 1970`);
  } else if (verb === "cancel" && subject !== undefined) {
    console.log((await producer.cancel(topic, subject)) ? "cancelled" : "there is no such timer");
  } else {
    throw new Error("usage: node producer.mjs schedule TOPIC TEXT … | cancel TOPIC ID");
  }
} finally {
  producer.close();
}
