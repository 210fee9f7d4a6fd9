// What the two halves of the small Node system share: where its queues and records are, and how it writes a date.
//
// The system is ours, made for tests, in the shape that the specification's queue contract and data model describe.
// Every option comes from the environment, so that a test can say it from Python (tests/support/node_system.py).

import { Redis } from 'ioredis';
import { MongoClient } from 'mongodb';

const env = process.env;

export const MAIN = 'courier-events-main';
export const DLQ = 'courier-events-dlq';
export const prefix = env.QUEUE_PREFIX ?? 'bull';

const DAY = 24 * 60 * 60 * 1000;
// text: ISO text, but expiresAt is a Date, for MongoDB's TTL. all-text: expiresAt too. date: every instant is a Date.
const dates = env.DATES ?? 'text';

export const instant = (at = new Date()) => (dates === 'date' ? at : at.toISOString());
export const expiry = (days) => {
  const at = new Date(Date.now() + days * DAY);
  return dates === 'all-text' ? at.toISOString() : at;
};
export const flag = (name, otherwise) => (env[name] === undefined ? otherwise : env[name] === 'true');
export const number = (name, otherwise) => (env[name] === undefined ? otherwise : Number(env[name]));

export const connection = new Redis(env.REDIS_URL, { maxRetriesPerRequest: null });

let client;

export async function openRecords() {
  client = await new MongoClient(env.MONGO_URI).connect();
  const place = env.MONGO_DB_NAME ? client.db(env.MONGO_DB_NAME) : null; // none: this half keeps no records
  if (place && flag('INDEXES', false)) {
    await createIndexes(place);
  }
  return {
    events: place?.collection('processed_events'),
    shipments: place?.collection('active_shipments'),
    letters: place?.collection('dead_letter_events'),
    // For the test that looks on: how often each event was applied.
    applied: client.db(env.APPLIED_DB_NAME).collection('applied'),
  };
}

async function createIndexes(place) {
  const events = place.collection('processed_events');
  await events.createIndex({ idempotencyKey: 1 }, { unique: true, name: 'uniq_idempotency_key' });
  await events.createIndex({ status: 1, updatedAt: 1 }, { name: 'status_updated_at' });
  await events.createIndex({ expiresAt: 1 }, { expireAfterSeconds: 0, name: 'ttl_expires_at' });
  const shipments = place.collection('active_shipments');
  await shipments.createIndex({ shipmentId: 1 }, { unique: true, name: 'uniq_shipment_id' });
  await shipments.createIndex({ orderId: 1 });
  await shipments.createIndex({ currentState: 1, updatedAt: 1 });
  const letters = place.collection('dead_letter_events');
  await letters.createIndex({ reviewStatus: 1, createdAt: 1 });
  await letters.createIndex({ createdAt: 1 });
  await letters.createIndex({ expiresAt: 1 }, { expireAfterSeconds: 0 });
}

// One line tells that it is up. It ends on SIGTERM, after what is under way, and at once when its parent is gone.
export function ready(facts, close) {
  process.on('SIGTERM', async () => {
    await close();
    await client.close();
    connection.disconnect();
    process.exit(0);
  });
  process.stdin.on('end', () => process.exit(1)).resume();
  process.stdout.write(`${JSON.stringify({ ready: true, ...facts })}\n`);
}
