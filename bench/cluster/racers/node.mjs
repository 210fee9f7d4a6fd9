// Node's stock Worker, and Queue.addBulk, of npm's bullmq. Talks as lines.py says.
// The argument is the folder whose node_modules has bullmq.

import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';

const require = createRequire(`${process.argv[2]}/`);
const { Queue, Worker } = require('bullmq');
const IORedis = require('ioredis');

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const hear = async () => (await lines.next()).value;
const say = (value) => process.stdout.write(`${JSON.stringify(value)}\n`);

const plan = JSON.parse(await hear());
const connection = new IORedis(plan.url, { maxRetriesPerRequest: null });

// Makes ready to work `count` jobs. Returns what starts the work, and resolves when the last job is finished in Redis.
async function consumer(queue, count) {
  let left = count;
  let finished;
  const done = new Promise((resolve) => {
    finished = resolve;
  });
  const worker = new Worker(queue, async () => null, {
    connection,
    prefix: plan.prefix,
    concurrency: plan.concurrency,
    removeOnComplete: { count: plan.keep },
    autorun: false,
  });
  worker.on('completed', () => {
    left -= 1;
    if (left === 0) finished();
  });
  await worker.waitUntilReady();
  return {
    run: async () => {
      worker.run();
      await done;
    },
    close: () => worker.close(true),
  };
}

async function add(queue, count) {
  const data = JSON.parse(plan.data);
  for (let first = 0; first < count; first += plan.batch) {
    const jobs = [];
    for (let number = first; number < Math.min(first + plan.batch, count); number += 1) {
      jobs.push({ name: 'job', data, opts: { jobId: `job-${number}` } });
    }
    await queue.addBulk(jobs);
  }
}

async function timed(run) {
  say({ ready: true });
  await hear();
  const cpu = process.cpuUsage();
  const started = process.hrtime.bigint();
  await run();
  const seconds = Number(process.hrtime.bigint() - started) / 1e9;
  const used = process.cpuUsage(cpu);
  say({ seconds, cpu_seconds: (used.user + used.system) / 1e6 });
}

if (plan.what === 'add') {
  const warm = new Queue(plan.warm_queue, { connection, prefix: plan.prefix });
  await add(warm, plan.warm);
  const queue = new Queue(plan.queue, { connection, prefix: plan.prefix });
  await queue.waitUntilReady();
  await timed(() => add(queue, plan.count));
} else {
  const warm = await consumer(plan.warm_queue, plan.warm);
  await warm.run();
  await warm.close();
  const measured = await consumer(plan.queue, plan.count);
  await timed(measured.run);
}
process.exit(0);
