// One call of the JavaScript example's producer: its arguments as JSON come in, its answer or error goes out.
//
// {"schedule": {"topic": …, "dueMicros": "1767225605000001", …}}  or  {"cancel": ["topic", "timer_id"]}

import { Producer, micros } from "../../examples/javascript/relay.mjs";

const [target, asked] = process.argv.slice(2);
const { schedule, cancel } = JSON.parse(asked);
const producer = new Producer(target, { timeoutMs: 120_000 });
console.error(`trying since ${Date.now()}`);
try {
  if (schedule) {
    const { dueMicros, ...rest } = schedule;
    const when = dueMicros === undefined ? {} : { dueTime: BigInt(dueMicros) };
    const { timer, replaced } = await producer.schedule({ ...rest, ...when });
    console.log(JSON.stringify({ timer_id: timer.timerId, due: String(micros(timer.dueTime)), replaced }));
  } else {
    console.log(JSON.stringify({ cancelled: await producer.cancel(...cancel) }));
  }
} catch (error) {
  console.log(JSON.stringify({ code: error.code, details: error.details }));
} finally {
  producer.close();
}
