// node run.js SCRIPT VUS ITERATIONS: what `k6 run` does with a script, but that each of
// VUS virtual users makes ITERATIONS one after the other, at no rate. Prints a summary
// as JSON. Ends with an error where k6 would refuse the script.

import { pathToFileURL } from 'node:url';
import { Worker } from 'node:worker_threads';
import { accept } from './options.js';
import { state } from './state.js';

const script = pathToFileURL(process.argv[2]).href;
const vus = Number(process.argv[3]);
const iterations = Number(process.argv[4]);

globalThis.__ENV = process.env;
globalThis.__VU = 0;
globalThis.__ITER = 0;
const module = await import(script);
const thresholds = accept(module.options, module, state.metrics);
state.running = true;
const given = module.setup === undefined ? undefined : JSON.stringify(module.setup());

const sums = { checks: {}, counts: {}, durations: {}, requests: state.requests, failed: state.failed, posts: [] };
await Promise.all(Array.from({ length: vus }, (_, i) => new Promise((resolve, reject) => {
  const worker = new Worker(new URL('./vu.js', import.meta.url), { workerData: { script, vu: i + 1, iterations, data: given } });
  let done = false;
  worker.on('message', (of) => {
    done = true;
    for (const [name, { passes, fails }] of Object.entries(of.checks)) {
      const sum = (sums.checks[name] ||= { passes: 0, fails: 0 });
      sum.passes += passes;
      sum.fails += fails;
    }
    for (const [name, n] of Object.entries(of.counts)) {
      sums.counts[name] = (sums.counts[name] || 0) + n;
    }
    for (const [call, took] of Object.entries(of.durations)) {
      (sums.durations[call] ||= []).push(...took);
    }
    sums.requests += of.requests;
    sums.failed += of.failed;
    sums.posts.push(...of.posts);
  });
  worker.on('error', reject);
  worker.on('exit', () => (done ? resolve() : reject(new Error(`virtual user ${i + 1} ended early`))));
})));

const checks = Object.values(sums.checks);
const passes = checks.reduce((sum, c) => sum + c.passes, 0);
const fails = checks.reduce((sum, c) => sum + c.fails, 0);

// figure returns what a threshold is about; NaN where nothing was measured, of which k6
// says that it holds.
function figure(t) {
  switch (t.metric) {
    case 'checks': return passes / (passes + fails);
    case 'http_req_failed': return sums.failed / sums.requests;
    case 'dropped_iterations': return 0;
    case 'http_req_duration': {
      const took = (t.tag === 'call' ? sums.durations[t.value] || [] : Object.values(sums.durations).flat()).sort((a, b) => a - b);
      const p = /^p\((.*)\)$/.exec(t.method);
      return p === null ? NaN : took[Math.ceil(Number(p[1]) / 100 * took.length) - 1] ?? NaN;
    }
    default: return sums.counts[t.metric] ?? NaN;
  }
}

function holds(x, { operator, limit }) {
  switch (operator) {
    case '<': return x < limit;
    case '<=': return x <= limit;
    case '>': return x > limit;
    case '>=': return x >= limit;
    case '!=': return x !== limit;
    default: return x === limit;
  }
}

console.log(JSON.stringify({
  scenarios: module.options.scenarios,
  thresholds: thresholds.map((t) => ({ of: t.key, text: t.text, measured: !Number.isNaN(figure(t)), holds: Number.isNaN(figure(t)) || holds(figure(t), t) })),
  checks: sums.checks,
  counts: sums.counts,
  requests: sums.requests,
  failed: sums.failed,
  posts: sums.posts,
}));
