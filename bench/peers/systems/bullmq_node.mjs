// The Queue and the Worker of npm's bullmq: one process, 50 jobs at a time. Talks as bench/peers/submit.py.
// Arguments: the folder whose node_modules has bullmq, and `work` or `submit`.

import { writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';

const require = createRequire(`${process.argv[2]}/`);
const { Queue, Worker } = require('bullmq');
const IORedis = require('ioredis');

const plan = JSON.parse(process.env.BENCH_PEERS_PLAN);
const connection = new IORedis(plan.redis, { maxRetriesPerRequest: null });
const say = (value) => process.stdout.write(`${JSON.stringify(value)}\n`);

function work() {
  let count = 0n;
  let written = 0n;
  const bytes = Buffer.alloc(8);
  new Worker('bench', async () => { count += 1n; }, { connection, concurrency: plan.at_once });
  setInterval(() => {
    if (count === written) return;
    bytes.writeBigInt64LE(count);
    writeFileSync(`${plan.counts}/${process.pid}`, bytes);
    written = count;
  }, 5);
}

async function submit() {
  const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
  const asked = JSON.parse((await lines.next()).value);
  const queue = new Queue('bench', { connection });
  await queue.waitUntilReady();
  let next = asked.first;
  const upTo = async (end) => {
    const some = async () => {
      while (next < end) {
        const number = `evt_${String(next++).padStart(9, '0')}`;
        await queue.add('noop', { ...plan.content, number }, { removeOnComplete: 1000 });
      }
    };
    await Promise.all(Array.from({ length: plan.at_once }, some));
  };
  await upTo(asked.first + asked.warm);
  say({ ready: true });
  await lines.next();
  const cpu = process.cpuUsage();
  const started = process.hrtime.bigint();
  await upTo(asked.first + asked.warm + asked.count);
  const used = process.cpuUsage(cpu);
  say({ seconds: Number(process.hrtime.bigint() - started) / 1e9, cpu_seconds: (used.user + used.system) / 1e6 });
  process.exit(0);
}

if (process.argv[3] === 'work') work();
else await submit();
