// Adds orders to the queue of node_orders.py, and waits until they are booked.
import { Queue, QueueEvents } from "bullmq";

const at = { connection: { url: process.env.REDIS_URL }, prefix: process.env.QUEUE_PREFIX ?? "bull" };
const queue = new Queue("orders", at);
const events = new QueueEvents("orders", at);
await events.waitUntilReady();

for (const number of process.argv.slice(2)) {
  const job = await queue.add("book_order", { number, cents: 500 });
  console.log(JSON.stringify(await job.waitUntilFinished(events)));
}

await events.close();
await queue.close();
