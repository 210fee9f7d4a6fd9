// bull-board, as its users run it: in an express app, on a free port of the loopback.

import { createBullBoard } from '@bull-board/api';
import { BullMQAdapter } from '@bull-board/api/bullMQAdapter';
import { ExpressAdapter } from '@bull-board/express';
import express from 'express';

export async function openBoard(queues) {
  const adapter = new ExpressAdapter();
  adapter.setBasePath('/board');
  createBullBoard({ queues: queues.map((queue) => new BullMQAdapter(queue)), serverAdapter: adapter });
  const app = express();
  app.use('/board', adapter.getRouter());
  const server = await new Promise((resolve) => {
    const listening = app.listen(0, '127.0.0.1', () => resolve(listening));
  });
  return { server, address: `http://127.0.0.1:${server.address().port}/board` };
}
