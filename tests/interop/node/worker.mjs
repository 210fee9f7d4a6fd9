// Node's stock Worker. What becomes of a job is decided by its name, so that a test can say it from Python.

import { DelayedError, UnrecoverableError, WaitingError, Worker } from 'bullmq';

const RESULT = { ok: true };

async function handle(job, token, released, result) {
  switch (job.name) {
    case 'bad': // fails for good, or until its attempts are used up
      throw new Error('boom');
    case 'flaky': // fails once
      if (job.attemptsMade === 0) {
        throw new Error('boom');
      }
      return RESULT;
    case 'hopeless': // fails for good, whatever attempts are left
      throw new UnrecoverableError('boom');
    case 'nothing': // is done and has no value
      return undefined;
    case 'return': // asks once to be run by another worker, which is no failure
      if (job.attemptsStarted === 1) {
        await job.moveToWait(token);
        throw new WaitingError();
      }
      return RESULT;
    case 'snooze': // asks once to be run later, which is no failure
      if (job.attemptsStarted === 1) {
        await job.moveToDelayed(Date.now() + 100, token);
        throw new DelayedError();
      }
      return RESULT;
    case 'held': // is done when the test says so
      await released;
      return RESULT;
    case 'hang': // is never done
      return new Promise(() => {});
    default:
      return result;
  }
}

export function startWorker(queue, { result = RESULT, ...options }) {
  const runs = [];
  const errors = [];
  let release;
  const released = new Promise((resolve) => {
    release = resolve;
  });
  const worker = new Worker(
    queue,
    (job, token) => {
      // A copy: the job goes on changing.
      runs.push({ ...JSON.parse(JSON.stringify(job)), at: Date.now() });
      return handle(job, token, released, result);
    },
    options,
  );
  worker.on('error', (error) => errors.push(error.message));
  return { worker, runs, errors, release };
}
