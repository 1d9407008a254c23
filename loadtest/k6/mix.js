// What front ends do all day: orders are made, repeated, looked at and listed, at a
// constant rate.
//
//   k6 run -e RATE=500 -e DURATION=60s mix.js
//   k6 run -e MIX=create=60,get=40 mix.js
//
// MIX is this script's own setting; octopay.js lists the others. A virtual user reads
// what it made itself, and makes an order first when it has none.

import exec from 'k6/execution';
import { begin, create, getOrder, listByMerchant, listByUser, lookUp, newOrder, repeat, settings, thresholds } from './octopay.js';

const calls = {
  create: null, // makes an order of its own
  repeat: (kept) => repeat(kept.order, kept.stored),
  get: (kept) => getOrder(kept.stored),
  'look-up': (kept) => lookUp(kept.stored),
  'list-by-uid': (kept) => listByUser(kept.stored),
  'list-by-bid': (kept) => listByMerchant(kept.stored),
};

const mix = (__ENV.MIX || 'create=50,repeat=5,get=25,look-up=10,list-by-uid=5,list-by-bid=5').split(',').map((share) => {
  const at = share.split('=');
  const weight = Number(at[1]);
  if (at.length !== 2 || calls[at[0]] === undefined || !(weight > 0 && weight <= 1000000)) {
    throw new Error(`MIX must be call=weight,… of ${Object.keys(calls).join(', ')}; not ${JSON.stringify(share)}`);
  }
  return { call: at[0], weight: weight };
});
const weights = mix.reduce((sum, share) => sum + share.weight, 0);

export const options = {
  scenarios: {
    mix: {
      executor: 'constant-arrival-rate',
      rate: settings.rate,
      timeUnit: '1s',
      duration: settings.duration,
      preAllocatedVUs: settings.vus,
      maxVUs: settings.vus,
    },
  },
  thresholds: thresholds,
};

export const setup = begin;

// The newest orders that this virtual user made.
const keptMax = 100;
const kept = [];

function make(data) {
  const order = newOrder(data.run);
  const stored = create(order);
  if (stored !== null) {
    kept[exec.vu.iterationInInstance % keptMax] = { order: order, stored: stored };
  }
}

function pick() {
  let at = Math.random() * weights;
  for (const share of mix) {
    at -= share.weight;
    if (at < 0) {
      return share.call;
    }
  }
  return mix[mix.length - 1].call;
}

export default function (data) {
  const call = calls[pick()];
  const known = kept.filter((k) => k !== undefined);
  if (call === null || known.length === 0) {
    make(data);
    return;
  }
  call(known[Math.floor(Math.random() * known.length)]);
}
