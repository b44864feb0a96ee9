// Schedules and cancels:
//   node producer.mjs schedule TOPIC TEXT [--id ID] [--in MILLISECONDS | --at 2030-01-31T09:00:00Z]
//   node producer.mjs cancel TOPIC ID

import { parseArgs } from "node:util";
import { Producer, micros } from "./relay.mjs";

const USAGE =
  "usage: node producer.mjs schedule TOPIC TEXT [--id ID] [--in MILLISECONDS | --at 2030-01-31T09:00:00Z] | cancel TOPIC ID";

/** The parsed arguments; undefined if they are wrong. */
function asked() {
  const text = { type: "string" };
  try {
    const { positionals, values } = parseArgs({ allowPositionals: true, options: { id: text, in: text, at: text } });
    const [verb, topic, subject, ...rest] = positionals;
    const due = values.at ? { dueTime: new Date(values.at) } : { delayMs: Number(values.in ?? 0) };
    const isTime = !Number.isNaN(Number(due.dueTime ?? due.delayMs));
    const isWhole = subject !== undefined && !rest.length && !(values.at && values.in);
    if (["schedule", "cancel"].includes(verb) && isWhole && isTime) return { verb, topic, subject, due, id: values.id };
  } catch (error) {
    if (!error.code?.startsWith("ERR_PARSE_ARGS")) throw error;
  }
}

const wanted = asked();
if (!wanted) {
  console.error(USAGE);
  process.exit(2);
}
const { verb, topic, subject, due: when, id } = wanted;

const producer = new Producer();
try {
  if (verb === "schedule") {
    const { timer, replaced } = await producer.schedule({
      topic,
      timerId: id,
      payload: subject,
      contentType: "text/plain; charset=utf-8",
      ...when,
    });
    const due = micros(timer.dueTime);
    console.log(`${replaced ? "rescheduled" : "scheduled"} ${topic}/${timer.timerId} for ${due} µs since 1970`);
  } else {
    console.log((await producer.cancel(topic, subject)) ? "cancelled" : "there is no such timer");
  }
} finally {
  producer.close();
}
