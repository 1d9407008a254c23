export const options = {
  scenarios: { a: { executor: 'constant-arrival-rate', rate: 1, duration: '1s', preAllocatedVUs: 1 } },
  thresholds: { checks: ['rate=1'] },
};
export default function () {}
