export const options = {
  scenarios: { a: { executor: 'constant-arrival-rate', rate: 1, duration: '30', preAllocatedVUs: 1 } },
  thresholds: {},
};
export default function () {}
