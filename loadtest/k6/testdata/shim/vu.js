// A virtual user: a thread with a copy of the script of its own, as in k6.

import { parentPort, workerData } from 'node:worker_threads';
import { state } from './state.js';

const { script, vu, iterations, data } = workerData;
globalThis.__ENV = process.env;
globalThis.__VU = vu;
globalThis.__ITER = 0;

const module = await import(script);
state.running = true;
state.vu = vu;
for (let i = 0; i < iterations; i++) {
  state.iteration = globalThis.__ITER = i;
  module.default(data === undefined ? undefined : JSON.parse(data));
}
const { checks, counts, durations, requests, failed, posts } = state;
parentPort.postMessage({ checks, counts, durations, requests, failed, posts });
