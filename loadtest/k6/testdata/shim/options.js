// What k6 accepts of a script's options: it refuses the others before it sends anything.

const builtin = new Map([
  ['checks', 'rate'], ['http_req_failed', 'rate'], ['http_req_duration', 'trend'], ['http_req_waiting', 'trend'],
  ['http_reqs', 'counter'], ['iterations', 'counter'], ['dropped_iterations', 'counter'], ['iteration_duration', 'trend'],
  ['data_sent', 'counter'], ['data_received', 'counter'], ['vus', 'gauge'], ['vus_max', 'gauge'],
]);

const methods = {
  counter: /^(count|rate)$/,
  gauge: /^value$/,
  rate: /^rate$/,
  trend: /^(avg|min|max|med|p\((\d{1,2}(\.\d+)?|100)\))$/,
};

function duration(text, what) {
  if (typeof text !== 'string' || !/^(\d+(\.\d+)?(ms|s|m|h|d))+$/.test(text)) {
    throw new Error(`${what} is no duration: ${JSON.stringify(text)}`);
  }
}

function whole(value, least, what) {
  if (!Number.isInteger(value) || value < least) {
    throw new Error(`${what} must be a whole number from ${least}, not ${value}`);
  }
}

const common = ['executor', 'timeUnit', 'preAllocatedVUs', 'maxVUs', 'startTime', 'gracefulStop', 'exec', 'env', 'tags'];

const executors = {
  'constant-arrival-rate': {
    fields: ['rate', 'duration'],
    check(s) {
      whole(s.rate, 1, 'rate');
      duration(s.duration, 'duration');
    },
  },
  'ramping-arrival-rate': {
    fields: ['startRate', 'stages'],
    check(s) {
      whole(s.startRate ?? 0, 0, 'startRate');
      if (!Array.isArray(s.stages) || s.stages.length === 0) {
        throw new Error('stages: there must be one');
      }
      for (const stage of s.stages) {
        fields(stage, ['target', 'duration'], 'a stage');
        whole(stage.target, 0, 'target');
        duration(stage.duration, 'duration');
      }
    },
  },
};

function fields(value, names, what) {
  for (const name of Object.keys(value)) {
    if (!names.includes(name)) {
      throw new Error(`${what} has no field ${name}`);
    }
  }
}

// accept throws what k6 would say, and returns the thresholds, taken apart.
export function accept(options, script, declared) {
  fields(options, ['scenarios', 'thresholds'], 'options');
  if (!options.scenarios || Object.keys(options.scenarios).length === 0) {
    throw new Error('options have no scenario');
  }
  for (const [name, s] of Object.entries(options.scenarios)) {
    const executor = executors[s.executor];
    if (executor === undefined) {
      throw new Error(`${name}: there is no executor ${JSON.stringify(s.executor)}`);
    }
    fields(s, common.concat(executor.fields), `${name} (${s.executor})`);
    executor.check(s);
    if (s.timeUnit !== undefined) {
      duration(s.timeUnit, 'timeUnit');
    }
    whole(s.preAllocatedVUs, 0, 'preAllocatedVUs');
    whole(s.maxVUs ?? s.preAllocatedVUs, Math.max(1, s.preAllocatedVUs), 'maxVUs');
    if (typeof script[s.exec ?? 'default'] !== 'function') {
      throw new Error(`${name} runs ${s.exec ?? 'default'}, which is no exported function`);
    }
  }
  const thresholds = [];
  for (const [key, all] of Object.entries(options.thresholds)) {
    const name = /^([a-zA-Z_]\w{0,127})(?:\{(\w+):([^{},]+)\})?$/.exec(key);
    if (name === null) {
      throw new Error(`a threshold can't be of ${JSON.stringify(key)}`);
    }
    const type = builtin.get(name[1]) ?? declared.get(name[1]);
    if (type === undefined) {
      throw new Error(`a threshold is of ${name[1]}, which is no metric`);
    }
    for (const text of all) {
      const said = /^\s*(\S+?)\s*(>=|<=|>|<|===|==|!=)\s*(\d+(?:\.\d+)?)\s*$/.exec(text);
      if (said === null) {
        throw new Error(`${key}: ${JSON.stringify(text)} is no threshold`);
      }
      if (!methods[type].test(said[1])) {
        throw new Error(`${key} is a ${type}, which has no ${said[1]}`);
      }
      thresholds.push({ key, metric: name[1], tag: name[2], value: name[3], text, method: said[1], operator: said[2], limit: Number(said[3]) });
    }
  }
  return thresholds;
}
