// Node's side of the interop tests. One line of JSON on standard input is a command, one line on standard output its
// answer; commands run side by side. Everything here is BullMQ's public API: what it sees is what a Node user sees.

import { createInterface } from 'node:readline';

import { FlowProducer, Queue, QueueEvents } from 'bullmq';
import { Redis } from 'ioredis';

import { startWorker } from './worker.mjs';

const connections = new Map(); // url -> client
const queues = new Map(); // place -> Queue
const events = new Map(); // place -> {listener: QueueEvents, heard: [...]}
const workers = new Map(); // name -> what startWorker gave
const boards = new Map(); // prefix -> server

const keyOf = (at) => JSON.stringify([at.url, at.prefix, at.queue]);

function optionsOf(at) {
  if (!connections.has(at.url)) {
    const options = { maxRetriesPerRequest: null };
    const { hostname: host, port } = new URL(at.url);
    const client = at.cluster
      ? new Redis.Cluster([{ host, port: Number(port) }], { redisOptions: options })
      : new Redis(at.url, options);
    connections.set(at.url, client);
  }
  return { connection: connections.get(at.url), prefix: at.prefix };
}

function queueOf(at) {
  const key = keyOf(at);
  if (!queues.has(key)) {
    queues.set(key, new Queue(at.queue, optionsOf(at)));
  }
  return queues.get(key);
}

async function eventsOf(at) {
  const key = keyOf(at);
  if (!events.has(key)) {
    const heard = [];
    // From the first event on, whenever the listening began.
    const listener = new QueueEvents(at.queue, { ...optionsOf(at), lastEventId: '0-0' });
    const names = ['added', 'waiting', 'active', 'completed', 'failed', 'delayed', 'stalled', 'drained'];
    for (const event of [...names, 'retries-exhausted', 'paused', 'resumed', 'removed']) {
      listener.on(event, (told) => heard.push({ event, ...told }));
    }
    events.set(key, { listener, heard });
  }
  const one = events.get(key);
  await one.listener.waitUntilReady();
  return one;
}

async function jobOf(at, id) {
  const job = await queueOf(at).getJob(id);
  if (!job) {
    throw new Error(`there is no job ${id}`);
  }
  return job;
}

const commands = {
  // Any method of Queue, by its name.
  queue: ({ at, method, args = [] }) => queueOf(at)[method](...args),

  // A job as Node sees it, and the state that it says the job is in.
  async job({ at, id }) {
    const job = await queueOf(at).getJob(id);
    return job ? { ...job.toJSON(), state: await job.getState() } : null;
  },

  // Any method of Job, by its name.
  tell: async ({ at, id, method, args = [] }) => (await jobOf(at, id))[method](...args),

  // What a producer that waits for the result gets: a value, or a rejection.
  async finished({ at, id, ttl }) {
    const { listener } = await eventsOf(at);
    const job = await jobOf(at, id);
    return job.waitUntilFinished(listener, ttl).then(
      (resolved) => ({ resolved }),
      (error) => ({ rejected: error.message }),
    );
  },

  async listen({ at }) {
    await eventsOf(at);
  },

  heard: async ({ at }) => (await eventsOf(at)).heard,

  // Parents and children, added together.
  async flow({ at, flow }) {
    const producer = new FlowProducer(optionsOf(at));
    const added = await producer.add(flow);
    await producer.close();
    return added;
  },

  async work({ at, name, options = {} }) {
    const one = startWorker(at.queue, { ...optionsOf(at), ...options });
    workers.set(name, one);
    await one.worker.waitUntilReady();
  },

  runs: ({ name }) => workers.get(name).runs,

  errors: ({ name }) => workers.get(name).errors,

  release: ({ name }) => workers.get(name).release(),

  checkStalls: ({ name }) => workers.get(name).worker.startStalledCheckTimer(),

  // Stops after what is under way, and tells of all that was run.
  async rest({ name }) {
    const { worker, runs } = workers.get(name);
    workers.delete(name);
    await worker.close();
    return runs;
  },

  // Loaded when it is asked for: most tests need no web server.
  async board({ at, names }) {
    const { openBoard } = await import('./board.mjs');
    const { server, address } = await openBoard(names.map((queue) => queueOf({ ...at, queue })));
    boards.set(at.prefix, server);
    return address;
  },

  async complaints({ schema, documents }) {
    const { complaints } = await import('./schema.mjs');
    return complaints(schema, documents);
  },

  // Lets go of everything that was opened under a prefix.
  async forget({ prefix }) {
    const under = (key) => JSON.parse(key)[1].startsWith(prefix);
    boards.get(prefix)?.closeAllConnections();
    boards.get(prefix)?.close();
    boards.delete(prefix);
    for (const [name, { worker }] of workers) {
      if (worker.opts.prefix.startsWith(prefix)) {
        workers.delete(name);
        await worker.close(true);
      }
    }
    for (const [key, { listener }] of events) {
      if (under(key)) {
        events.delete(key);
        await listener.close();
      }
    }
    for (const [key, queue] of queues) {
      if (under(key)) {
        queues.delete(key);
        await queue.close();
      }
    }
  },

  // Hangs up on a server that is about to go.
  leave({ url }) {
    connections.get(url)?.disconnect();
    connections.delete(url);
  },
};

async function answer(line) {
  const { number, command, ...rest } = JSON.parse(line);
  let told;
  try {
    told = { number, value: await commands[command](rest) };
  } catch (error) {
    told = { number, error: error.message };
  }
  process.stdout.write(`${JSON.stringify(told)}\n`);
}

createInterface({ input: process.stdin })
  .on('line', answer)
  .on('close', () => process.exit(0));
