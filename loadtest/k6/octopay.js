// What the scripts here share: their settings, Octopay's requests, and what must be true
// of each answer. A check that fails is a fault, or a service that is overloaded: either
// way the run fails, and its figures mean nothing.
//
// Order ids have 23 digits. JavaScript loses the last seven of such a number, so here, as
// in every answer, they are strings from beginning to end.

import http from 'k6/http';
import { check, fail } from 'k6';
import exec from 'k6/execution';
import { Counter } from 'k6/metrics';

// A setting that is no number, or too small, ends k6 before it sends anything.
function number(name, otherwise, least) {
  const text = __ENV[name];
  const value = text === undefined || text === '' ? otherwise : Number(text);
  if (!(value >= least) || !isFinite(value)) {
    throw new Error(`${name} must be a number from ${least}, not ${JSON.stringify(text)}`);
  }
  return value;
}

function whole(name, otherwise, least) {
  const value = number(name, otherwise, least);
  if (Math.floor(value) !== value) {
    throw new Error(`${name} must be a whole number, not ${value}`);
  }
  return value;
}

const rate = whole('RATE', 200, 1);

// The settings, each a variable of the environment (k6 run -e RATE=500 create.js).
export const settings = {
  baseURL: (__ENV.BASE_URL || 'http://127.0.0.1:8080').replace(/\/+$/, ''),
  key: __ENV.KEY || 'dev-app',
  rate, // iterations in a second; ramp.js: at the top
  duration: __ENV.DURATION || '30s', // ramp.js: at the top
  // Each iteration under way needs a virtual user. This many carry answers of up to half
  // a second; when all are busy, an iteration is dropped and the run fails.
  vus: whole('VUS', Math.max(50, Math.ceil(rate / 2)), 1),
  buyers: whole('BUYERS', 1000000, 1),
  merchants: whole('MERCHANTS', 1000, 1),
  repeats: number('REPEATS', 0.05, 0), // share of the creates that are sent twice
  p99: number('P99_MS', 1000, 1), // ms
  run: __ENV.RUN || '', // names the run; made when absent
};
if (settings.repeats > 1) {
  throw new Error('REPEATS must be from 0 to 1');
}
if (!/^[0-9A-Za-z]{0,20}$/.test(settings.run)) {
  throw new Error('RUN must have at most 20 of 0-9, A-Z and a-z');
}

// A run that dropped an iteration measured something else than it was asked to, and one
// in which a check failed measured faults.
export const thresholds = {
  dropped_iterations: ['count==0'],
  checks: ['rate==1'],
  http_req_failed: ['rate==0'],
  'http_req_duration{call:create}': [`p(99)<${settings.p99}`],
};

const created = new Counter('orders_created');
const replayed = new Counter('orders_replayed');

// begin is the setup of every script: it gives the run its name, which all virtual users
// must have in common, and makes sure that Octopay is there.
export function begin() {
  const answer = http.get(`${settings.baseURL}/openapi.yaml`, { tags: { call: 'openapi', name: 'GET /openapi.yaml' } });
  if (answer.status !== 200) {
    fail(`no Octopay answers at ${settings.baseURL} (status ${answer.status}); BASE_URL names another place`);
  }
  return { run: settings.run || Date.now().toString(36) + Math.floor(Math.random() * 46656).toString(36) };
}

function params(call, name) {
  return {
    headers: { Authorization: `Bearer ${settings.key}`, 'Content-Type': 'application/json' },
    tags: { call: call, name: name }, // one name for all ids, or k6 keeps figures for each
    timeout: '15s',
  };
}

function between(low, high) {
  return low + Math.floor(Math.random() * (high - low + 1));
}

// newOrder makes what a create asks for. Its out_trade_no is of this iteration alone: of
// this run, this virtual user in all k6 processes of the test, and its iteration.
export function newOrder(run) {
  const sku = `lm2-${between(0, 999)}`;
  return {
    uid: String(between(1, settings.buyers)),
    bid: String(1000 + between(1, settings.merchants)),
    out_trade_no: `k6-${run}-${exec.vu.idInTest}-${exec.vu.iterationInInstance}`,
    amount: between(1, 1000000),
    currency: ['CNY', 'JPY', 'KWD'][between(0, 2)],
    subject: `Le Max 2 🐙 ${sku}`,
    metadata: { sku: sku },
  };
}

// A body is parsed where it is an object, and the rest of the checks see null otherwise.
function object(answer) {
  try {
    const value = JSON.parse(answer.body);
    return value !== null && typeof value === 'object' ? value : {};
  } catch (e) {
    return {};
  }
}

function isID(id) {
  return typeof id === 'string' && /^1[0-9]{22}$/.test(id);
}

// same reports whether an answer holds the order that was asked for.
function same(stored, order) {
  return stored.uid === order.uid && stored.bid === order.bid && stored.out_trade_no === order.out_trade_no &&
    stored.amount === order.amount && stored.currency === order.currency && stored.subject === order.subject;
}

function post(call, order) {
  return http.post(`${settings.baseURL}/v1/orders`, JSON.stringify(order), params(call, 'POST /v1/orders'));
}

function get(call, name, path) {
  return http.get(`${settings.baseURL}${path}`, params(call, name));
}

// create makes an order and returns it as it was answered, or null.
export function create(order) {
  const answer = post('create', order);
  const stored = object(answer);
  const good = check(answer, {
    'create: 201': (r) => r.status === 201,
    'create: order_id is a string of 23 digits': () => isID(stored.order_id),
    'create: Location names the order': (r) => r.headers.Location === `/v1/orders/${stored.order_id}`,
    'create: the order is as it was sent': () => same(stored, order),
    'create: not a replay': (r) => r.headers['Idempotent-Replayed'] === undefined,
  });
  if (!good) {
    return null;
  }
  created.add(1);
  return stored;
}

// repeat sends a create again: it must answer with the order that there is.
export function repeat(order, stored) {
  const answer = post('repeat', order);
  const again = object(answer);
  if (check(answer, {
    'repeat: 200': (r) => r.status === 200,
    'repeat: Idempotent-Replayed': (r) => r.headers['Idempotent-Replayed'] === 'true',
    'repeat: the same order': () => again.order_id === stored.order_id && same(again, order),
  })) {
    replayed.add(1);
  }
}

// getOrder reads an order by its id.
export function getOrder(stored) {
  const answer = get('get', 'GET /v1/orders/{order_id}', `/v1/orders/${stored.order_id}`);
  const found = object(answer);
  check(answer, {
    'get: 200': (r) => r.status === 200,
    'get: the order': () => found.order_id === stored.order_id && same(found, stored),
  });
}

// lookUp finds an order by what its maker knows of it.
export function lookUp(stored) {
  const answer = get('look-up', 'GET /v1/orders?uid&bid&out_trade_no',
    `/v1/orders?uid=${stored.uid}&bid=${stored.bid}&out_trade_no=${encodeURIComponent(stored.out_trade_no)}`);
  const found = object(answer);
  check(answer, {
    'look-up: 200': (r) => r.status === 200,
    'look-up: the order': () => found.order_id === stored.order_id && same(found, stored),
  });
}

// listByUser lists the buyer's newest orders. Theirs is the truth: the order is in it at
// once, unless newer ones fill the page.
export function listByUser(stored) {
  const answer = get('list-by-uid', 'GET /v1/users/{uid}/orders', `/v1/users/${stored.uid}/orders`);
  const page = object(answer);
  const data = Array.isArray(page.data) ? page.data : [];
  check(answer, {
    'list by uid: 200': (r) => r.status === 200,
    'list by uid: of this buyer alone': () => data.every((o) => o.uid === stored.uid),
    'list by uid: the order': () => page.has_more === true || data.some((o) => o.order_id === stored.order_id),
  });
}

// listByMerchant finds the order in the mirror. It may not be there yet; but when
// X-Mirror-Complete-Until is past it, it must be, once. Both times are RFC 3339 in UTC
// with milliseconds, so that they compare as texts.
export function listByMerchant(stored) {
  const answer = get('list-by-bid', 'GET /v1/merchants/{bid}/orders',
    `/v1/merchants/${stored.bid}/orders?out_trade_no=${encodeURIComponent(stored.out_trade_no)}`);
  const page = object(answer);
  const data = Array.isArray(page.data) ? page.data : [];
  const times = data.filter((o) => o.order_id === stored.order_id).length;
  const until = answer.headers['X-Mirror-Complete-Until'];
  check(answer, {
    'list by bid: 200': (r) => r.status === 200,
    'list by bid: X-Mirror-Complete-Until': () => typeof until === 'string' && /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/.test(until),
    'list by bid: complete as it says': () => times === 1 || (times === 0 && until <= stored.updated_at),
  });
}
