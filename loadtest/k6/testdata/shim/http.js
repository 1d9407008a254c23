// The module 'k6/http'. k6's calls return when the answer is there; Node's don't. So a
// thread of its own makes the request, and this one stands still meanwhile.

import { MessageChannel, Worker, receiveMessageOnPort } from 'node:worker_threads';
import { state } from './state.js';

const answered = new Int32Array(new SharedArrayBuffer(4));
let port = null;

function start() {
  const { port1, port2 } = new MessageChannel();
  new Worker(new URL('./fetch.js', import.meta.url), { workerData: { answered, port: port2 }, transferList: [port2] }).unref();
  port1.unref();
  return port1;
}

const known = ['headers', 'tags', 'timeout', 'redirects', 'responseType', 'responseCallback', 'auth', 'compression', 'cookies', 'jar'];

function request(method, url, body, params = {}) {
  if (!state.running) {
    throw new Error('a request in the init code');
  }
  for (const name of Object.keys(params)) {
    if (!known.includes(name)) {
      throw new Error(`k6 knows no request parameter ${name}`);
    }
  }
  port ||= start();
  Atomics.store(answered, 0, 0);
  const began = performance.now();
  port.postMessage({ method, url, body, headers: params.headers || {} });
  // Again, since the last request's notify can come late and wake this one.
  while (Atomics.load(answered, 0) === 0) {
    if (Atomics.wait(answered, 0, 0, 30000) === 'timed-out') {
      throw new Error(`${method} ${url}: no answer within 30 s`);
    }
  }
  const response = receiveMessageOnPort(port).message;
  const took = performance.now() - began;
  const headers = {};
  for (const [name, value] of response.headers) { // as k6 writes their names
    headers[name.split('-').map((part) => part.slice(0, 1).toUpperCase() + part.slice(1)).join('-')] = value;
  }

  state.requests++;
  if (!(response.status >= 200 && response.status < 400)) {
    state.failed++;
  }
  const call = (params.tags || {}).call;
  (state.durations[call] ||= []).push(took);
  if (method === 'POST') {
    state.posts.push({ sent: body, status: response.status, body: response.body });
  }
  return { status: response.status, body: response.body, headers, error: response.error, timings: { duration: took }, url };
}

export default {
  get: (url, params) => request('GET', url, null, params),
  post: (url, body, params) => request('POST', url, body, params),
};
