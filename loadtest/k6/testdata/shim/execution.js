// The module 'k6/execution'.

import { state } from './state.js';

const inVU = () => {
  if (!state.running || state.vu === 0) {
    throw new Error('exec.vu outside of a virtual user');
  }
  return state;
};

export default {
  vu: {
    get idInTest() { return inVU().vu; },
    get idInInstance() { return inVU().vu; },
    get iterationInInstance() { return inVU().iteration; },
    get iterationInScenario() { return inVU().iteration; },
  },
};
