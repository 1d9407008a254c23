// What the modules of this shim share in one virtual user (a thread): it stands in for
// k6, of which it has just what the scripts use, and refuses what k6 refuses.

export const state = {
  running: false, // the init code is over
  vu: 0,
  iteration: 0,
  metrics: new Map(), // declared ones: name -> type
  checks: {}, // name -> { passes, fails }
  counts: {}, // counter -> sum
  durations: {}, // call -> ms of each request
  requests: 0,
  failed: 0,
  posts: [], // every POST: what was sent, and what was answered
};
