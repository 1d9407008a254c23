// The module 'k6/metrics'.

import { state } from './state.js';

class Metric {
  constructor(name, type) {
    if (state.running) {
      throw new Error(`the metric ${name} is declared outside of the init code`);
    }
    if (!/^[a-zA-Z_][a-zA-Z0-9_]{0,127}$/.test(name)) {
      throw new Error(`a metric can't be named ${JSON.stringify(name)}`);
    }
    this.name = name;
    state.metrics.set(name, type);
  }

  add(value) {
    if (!state.running) {
      throw new Error('a metric is added to in the init code');
    }
    if (!Number.isFinite(Number(value))) {
      throw new Error(`${this.name} got ${value}`);
    }
    state.counts[this.name] = (state.counts[this.name] || 0) + Number(value);
  }
}

export class Counter extends Metric { constructor(name) { super(name, 'counter'); } }
export class Gauge extends Metric { constructor(name) { super(name, 'gauge'); } }
export class Rate extends Metric { constructor(name) { super(name, 'rate'); } }
export class Trend extends Metric { constructor(name) { super(name, 'trend'); } }
