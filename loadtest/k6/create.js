// Orders at a constant rate, whatever the answers do (open loop).
//
//   k6 run -e BASE_URL=http://127.0.0.1:8080 -e RATE=500 -e DURATION=60s create.js
//
// REPEATS of them are sent a second time, as a front end does that lost an answer.
// octopay.js lists the settings.

import { begin, create, newOrder, repeat, settings, thresholds } from './octopay.js';

export const options = {
  scenarios: {
    create: {
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

export default function (data) {
  const order = newOrder(data.run);
  const stored = create(order);
  if (stored !== null && Math.random() < settings.repeats) {
    repeat(order, stored);
  }
}
