// BullMQ with delayed jobs. Its default is a concurrency of 1, and that all jobs are kept once they are done.
// Takes and says what bench/peers/__init__.py tells.
import { setTimeout as sleep } from 'node:timers/promises';
import { Queue, Worker } from 'bullmq';
import { Redis } from 'ioredis';

const PAUSE = 1000; // ms from storing a timer until it is due
const TOGETHER = 500;
const { work, url, timers, payload, concurrency, remove } = JSON.parse(process.argv[2]);
const connect = () => new Redis(url, { maxRetriesPerRequest: null });
const now = () => performance.timeOrigin + performance.now();
const quantiles = (values) => {
  const ordered = values.toSorted((a, b) => a - b);
  const at = (share) => ordered[Math.max(0, Math.ceil(share * ordered.length) - 1)];
  return { p50: at(0.5), p99: at(0.99), 'p99.9': at(0.999), max: at(1) };
};

const queue = new Queue('bench', { connection: connect() });
const content = 'p'.repeat(payload);
const options = { delay: PAUSE, ...(remove ? { removeOnComplete: true } : {}) };
const job = (number) => ({ name: 'timer', data: { number, content }, opts: options });

const seen = new Set();
const late = [];
let calls = 0;
let began, ended, cpu;
const done = Promise.withResolvers ? Promise.withResolvers() : withResolvers();

function withResolvers() {
  const made = {};
  made.promise = new Promise((resolve) => { made.resolve = resolve; });
  return made;
}

async function handle({ data, timestamp, opts }) {
  if (!calls) [began, cpu] = [performance.now(), process.cpuUsage()];
  calls += 1;
  late.push(now() - (timestamp + opts.delay));
  seen.add(data.number);
  if (seen.size === timers && ended === undefined) {
    ended = performance.now();
    done.resolve();
  }
}

if (work === 'drain') {
  for (let start = 0; start < timers; start += TOGETHER) {
    const numbers = Array.from({ length: Math.min(TOGETHER, timers - start) }, (_, n) => start + n);
    await queue.addBulk(numbers.map(job));
  }
  await sleep(PAUSE);
}
const worker = new Worker('bench', handle, { connection: connect(), ...(concurrency ? { concurrency } : {}) });
if (work === 'idle') {
  await worker.waitUntilReady();
  for (let number = 0; number < timers; number += 1) {
    await sleep(500 + Math.random() * 1000);
    const { name, data, opts } = job(number);
    await queue.add(name, data, opts);
    while (calls <= number) await sleep(5);
  }
}
await done.promise;
const { user, system } = process.cpuUsage(cpu);
await worker.close();
await queue.close();
console.log(JSON.stringify({
  seconds: (ended - began) / 1000,
  handled: seen.size,
  again: calls - seen.size,
  cpu: (user + system) / 1e6,
  lateness: work === 'idle' ? quantiles(late) : {},
}));
process.exit(0);
