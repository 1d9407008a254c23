// The thread that makes the requests of one virtual user.

import { workerData } from 'node:worker_threads';

const { answered, port } = workerData;

port.on('message', async ({ method, url, body, headers }) => {
  let response;
  try {
    const answer = await fetch(url, { method, body, headers });
    response = { status: answer.status, headers: [...answer.headers], body: await answer.text(), error: '' };
  } catch (e) {
    response = { status: 0, headers: [], body: null, error: String(e.cause || e) };
  }
  port.postMessage(response);
  Atomics.store(answered, 0, 1);
  Atomics.notify(answered, 0);
});
