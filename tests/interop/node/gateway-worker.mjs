// gateway-worker: works the main queue as the specification says, and keeps its records in MongoDB.
//
// CONCURRENCY, LOCK_MS (how long a killed worker's job stays its own), WORK_MS (how long an event takes),
// RETRY_MAX_ATTEMPTS, RETRY_BACKOFF_BASE_MS, RETRIES: "loop" (it waits and tries again by itself) or "queue" (it throws,
// and the job's own attempts and backoff decide), REMOVE_ON_COMPLETE and REMOVE_ON_FAIL (of jobs that do not say so
// themselves). What becomes of an event is decided by payload.status: "fail_permanently", "fail_transiently_3" (its
// first three attempts fail), anything else is applied.

import { setTimeout as sleep } from 'node:timers/promises';

import { Queue, UnrecoverableError, Worker } from 'bullmq';

import { DLQ, MAIN, connection, expiry, flag, instant, number, openRecords, prefix, ready } from './gateway.mjs';

const MULTIPLIER = 2;
const JITTER = 0.2;
const EVENT_DAYS = 30;
const LETTER_DAYS = 90;

const records = await openRecords();
const dlq = new Queue(DLQ, { connection, prefix });
const loops = (process.env.RETRIES ?? 'loop') === 'loop';
const mostAttempts = number('RETRY_MAX_ATTEMPTS', 5);
const baseMs = number('RETRY_BACKOFF_BASE_MS', 1000);

class Failure extends Error {
  constructor(code, message, permanent) {
    super(message);
    this.code = code;
    this.permanent = permanent;
  }
}

function backoff(attempt) {
  const delay = baseMs * MULTIPLIER ** (attempt - 1);
  return delay + Math.random() * JITTER * delay;
}

async function settled(key) {
  const found = await records.events?.findOne({ idempotencyKey: key });
  return found && ['processed', 'dead_lettered'].includes(found.status);
}

async function note(key, fields) {
  await records.events?.updateOne({ idempotencyKey: key }, { $set: { ...fields, updatedAt: instant() } });
}

async function begin({ idempotencyKey, eventId, eventType }) {
  await records.events?.updateOne(
    { idempotencyKey },
    {
      $set: { eventId, eventType, status: 'processing', updatedAt: instant() },
      $inc: { attemptCount: 1 },
      $setOnInsert: { firstSeenAt: instant() },
    },
    { upsert: true },
  );
}

async function apply(event, attempt) {
  const { payload, idempotencyKey } = event;
  if (payload.status === 'fail_permanently') {
    throw new Failure('VALIDATION_FAILED', 'malformed payload', true);
  }
  const failures = /^fail_transiently_(\d+)$/.exec(payload.status);
  if (failures && attempt <= Number(failures[1])) {
    throw new Failure('ETIMEDOUT', 'downstream timed out', false);
  }
  await sleep(number('WORK_MS', 0));
  const { shipmentId, orderId, status, ...metadata } = payload;
  await records.shipments?.updateOne(
    { shipmentId },
    {
      $set: {
        orderId,
        currentState: status,
        lastEventId: event.eventId,
        lastEventType: event.eventType,
        lastEventAt: process.env.DATES === 'date' ? new Date(event.occurredAt) : event.occurredAt,
        metadata,
        updatedAt: instant(),
      },
      $setOnInsert: { createdAt: instant() },
    },
    { upsert: true },
  );
  await records.applied.updateOne({ _id: idempotencyKey }, { $inc: { times: 1 } }, { upsert: true });
}

async function deadLetter(event, error, history) {
  const { idempotencyKey, eventId, eventType, traceId, payload } = event;
  const reason = error.permanent ? error.code : `${error.code}_EXHAUSTED`;
  await note(idempotencyKey, { status: 'dead_lettered', expiresAt: expiry(EVENT_DAYS) });
  const letter = {
    eventId,
    idempotencyKey,
    attemptCount: history.length,
    terminalReasonCode: reason,
    terminalReasonMessage: error.message,
    attemptHistory: history,
    payloadSnapshot: payload,
  };
  await records.letters?.insertOne({
    ...letter,
    eventType,
    reviewStatus: 'pending',
    createdAt: instant(),
    expiresAt: expiry(LETTER_DAYS),
  });
  await dlq.add('courier-event-dead', { ...letter, traceId, deadLetteredAt: new Date().toISOString() });
}

async function work(job) {
  const event = job.data;
  const key = event.idempotencyKey;
  if (await settled(key)) {
    return { status: 'skipped' };
  }
  // With the queue's own retries, the attempts before this one are known by their number alone.
  const earlier = loops ? 0 : job.attemptsMade;
  const history = Array.from({ length: earlier }, (_, at) => failed(at + 1, 'ETIMEDOUT'));
  const most = loops ? mostAttempts : Math.max(job.opts.attempts ?? 1, 1);
  for (let attempt = earlier + 1; ; attempt += 1) {
    await begin(event);
    try {
      await apply(event, attempt);
      await note(key, { status: 'processed', expiresAt: expiry(EVENT_DAYS) });
      return { status: 'processed' };
    } catch (error) {
      history.push(failed(attempt, error.code ?? 'UNKNOWN'));
      await note(key, {
        status: 'failed',
        lastErrorCode: error.code ?? 'UNKNOWN',
        lastErrorMessage: error.message,
      });
      if (error.permanent || attempt >= most) {
        await deadLetter(event, error, history);
        throw new UnrecoverableError(error.message);
      }
      if (!loops) {
        throw error;
      }
      await sleep(backoff(attempt));
    }
  }
}

const failed = (attempt, errorCode) => ({ attempt, outcome: 'failed', errorCode });
const kept = (variable) => (flag(variable, false) ? { count: 0 } : undefined);

const worker = new Worker(MAIN, work, {
  connection,
  prefix,
  concurrency: number('CONCURRENCY', 10),
  lockDuration: number('LOCK_MS', 30_000),
  removeOnComplete: kept('REMOVE_ON_COMPLETE'),
  removeOnFail: kept('REMOVE_ON_FAIL'),
});
worker.on('error', (error) => console.error(error.message));
await worker.waitUntilReady();
ready({}, async () => {
  await worker.close();
  await dlq.close();
});
