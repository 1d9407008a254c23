export const options = {
  scenarios: { a: { executor: 'constant-arrival-rate', rate: 1, duration: '1s', preAllocatedVUs: 1 } },
  thresholds: { droped_iterations: ['count==0'] },
};
export default function () {}
