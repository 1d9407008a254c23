// Orders at a rate that rises to the top, stays there and falls: where do the
// percentiles leave the ground, and do they come back?
//
//   k6 run -e START_RATE=50 -e RATE=2000 -e RAMP=60s -e DURATION=30s ramp.js
//
// START_RATE (a tenth of RATE) and RAMP (30s, up and down) are this script's own
// settings; octopay.js lists the others.

import { begin, create, newOrder, repeat, settings, thresholds } from './octopay.js';

const ramp = __ENV.RAMP || '30s';
const start = Math.floor(Number(__ENV.START_RATE || Math.max(1, settings.rate / 10)));
if (!(start >= 0)) {
  throw new Error('START_RATE must be a number from 0');
}

export const options = {
  scenarios: {
    ramp: {
      executor: 'ramping-arrival-rate',
      startRate: start,
      timeUnit: '1s',
      stages: [
        { target: settings.rate, duration: ramp },
        { target: settings.rate, duration: settings.duration },
        { target: start, duration: ramp },
      ],
      preAllocatedVUs: settings.vus,
      maxVUs: settings.vus,
    },
  },
  thresholds: thresholds,
};

export const setup = begin;

export default function (data) {
  const order = newOrder(data.run);
  const stored = create(order);
  if (stored !== null && Math.random() < settings.repeats) {
    repeat(order, stored);
  }
}
