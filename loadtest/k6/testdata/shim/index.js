// The module 'k6'.

import { state } from './state.js';

export function check(value, conditions, tags) {
  if (!state.running) {
    throw new Error('check in the init code');
  }
  let all = true;
  for (const [name, condition] of Object.entries(conditions)) {
    const good = Boolean(typeof condition === 'function' ? condition(value) : condition);
    const of = (state.checks[name] ||= { passes: 0, fails: 0 });
    of[good ? 'passes' : 'fails']++;
    all &&= good;
  }
  return all;
}

export function fail(why) {
  throw new Error(why);
}

export function sleep(seconds) {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, seconds * 1000);
}

export default { check, fail, sleep };
