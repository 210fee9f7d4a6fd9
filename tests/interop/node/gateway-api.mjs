// gateway-api: takes the courier's events over HTTP and puts them into the main queue.
//
// PORT (0: any), RECEIVED (whether it writes a record before it queues the job), JOB_ATTEMPTS (opts.attempts),
// BACKOFF_MS (opts.backoff, exponential), REMOVE_ON_COMPLETE, REMOVE_ON_FAIL (true, false, or not given).

import { createHmac, randomUUID } from 'node:crypto';
import { createServer } from 'node:http';

import { Queue } from 'bullmq';

import { MAIN, connection, flag, instant, number, openRecords, prefix, ready } from './gateway.mjs';

const records = await openRecords();
const queue = new Queue(MAIN, { connection, prefix });

const options = { attempts: number('JOB_ATTEMPTS', 0) };
if (process.env.BACKOFF_MS !== undefined) {
  options.backoff = { type: 'exponential', delay: number('BACKOFF_MS') };
}
for (const [name, variable] of [['removeOnComplete', 'REMOVE_ON_COMPLETE'], ['removeOnFail', 'REMOVE_ON_FAIL']]) {
  if (process.env[variable] !== undefined) {
    options[name] = flag(variable);
  }
}

async function accept(body) {
  const { eventId, eventType, occurredAt, source, payload } = body;
  const idempotencyKey = body.idempotencyKey ?? `${source}:${eventId}`;
  const traceId = `req_${randomUUID()}`;
  if (records.events && flag('RECEIVED', true)) {
    const now = instant();
    await records.events.updateOne(
      { idempotencyKey },
      {
        $setOnInsert: {
          eventId,
          eventType,
          status: 'received',
          attemptCount: 0,
          lastErrorCode: null,
          lastErrorMessage: null,
          firstSeenAt: now,
          updatedAt: now,
        },
      },
      { upsert: true },
    );
  }
  const timestamp = Math.floor(Date.now() / 1000);
  const signature = createHmac('sha256', 'secret').update(`${timestamp}.${eventId}`).digest('hex');
  const job = await queue.add(
    'courier-event',
    {
      eventId,
      eventType,
      occurredAt,
      source,
      idempotencyKey,
      traceId,
      signatureMeta: { algorithm: 'sha256', timestamp, signatureHeader: `sha256=${signature}` },
      payload,
      receivedAt: new Date().toISOString(),
      attempt: 1,
    },
    options,
  );
  return { status: 'accepted', eventId, idempotencyKey, traceId, jobId: job.id };
}

async function read(request) {
  const parts = [];
  for await (const part of request) {
    parts.push(part);
  }
  return JSON.parse(Buffer.concat(parts).toString());
}

const server = createServer(async (request, response) => {
  const answer = (status, body) =>
    response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
  if (request.method !== 'POST' || request.url !== '/events') {
    answer(404, { error: 'not found' });
    return;
  }
  try {
    answer(202, await accept(await read(request)));
  } catch (error) {
    answer(500, { error: error.message });
  }
});
server.keepAliveTimeout = 60_000;
server.listen(number('PORT', 0), '127.0.0.1', () => {
  ready({ address: `http://127.0.0.1:${server.address().port}` }, async () => {
    server.closeIdleConnections();
    await new Promise((resolve) => server.close(resolve));
    await queue.close();
  });
});
