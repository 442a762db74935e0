// Running code so that an interrupt can stop it, wherever it is.
//
// A guarded call also runs the jobs that it leaves behind (promises, next ticks) before it returns: what
// comes after an `await` is stopped as well as what comes before.
'use strict';

const script = new host.vm.Script('job()', { filename: 'guarded' });
const arguments_ = [host.realm, -1, false, true, false]; // no time limit, no decoration, break on SIGINT

let depth = 0;
exports.running = () => depth > 0;

// Thrown where an uncaught exception is to be handled but nothing is to be told.
exports.STOPPED = { toString: () => 'stopped' };

// Calls `job`. Returns 'done' or 'interrupted'.
exports.run = function run(job) {
  // Node forgets an interrupt that stopped nothing when a guarded call ends, so it is asked for before.
  if (exports.pending()) return 'interrupted';
  const before = host.executionAsyncId();
  depth++;
  host.realm.job = () => {
    job();
    host.tick();
  };
  try {
    Reflect.apply(host.runInContext, script, arguments_);
    return 'done';
  } catch (error) {
    const stopped = host.types.isNativeError(error) && interrupted(error);
    // Something thrown out of a next tick leaves Node's own stack of contexts askew, which would end the
    // process. Node's handler of uncaught exceptions, which also tells of the error, puts it straight.
    if (!stopped) host.uncaught(error, false);
    else if (host.executionAsyncId() !== before) host.uncaught(exports.STOPPED, false);
    return stopped ? 'interrupted' : 'done';
  } finally {
    depth--;
  }
};

function interrupted(error) {
  try {
    return error.code === 'ERR_SCRIPT_EXECUTION_INTERRUPTED';
  } catch {
    return false;
  }
}

// Whether there was an interrupt that stopped nothing, since the last time that somebody asked.
exports.pending = function pending() {
  host.signals.startSigintWatchdog();
  return host.signals.stopSigintWatchdog();
};
