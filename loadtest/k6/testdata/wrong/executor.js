export const options = {
  scenarios: { a: { executor: 'constant-arrival', rate: 1, duration: '1s', preAllocatedVUs: 1 } },
  thresholds: {},
};
export default function () {}
