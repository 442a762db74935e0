// Running code so that an interrupt can stop it, wherever it is.
//
// A guarded call also runs the jobs that it leaves behind (promises, next ticks) before it returns: what
// comes after an `await` is stopped as well as what comes before.
'use strict';

const script = new host.vm.Script('job()', { filename: 'guarded' });
const arguments_ = [host.realm, -1, false, true, false]; // no time limit, no decoration, break on SIGINT

let depth = 0;
exports.running = () => depth > 0;

// Calls `job`. Returns 'done', 'interrupted', or what was thrown by a left-behind job as `{ thrown }`.
exports.run = function run(job) {
  depth++;
  host.realm.job = () => {
    job();
    host.tick();
  };
  try {
    Reflect.apply(host.runInContext, script, arguments_);
    return 'done';
  } catch (error) {
    // `thrown` first: reading the code of a hostile object may throw too.
    if (host.types.isNativeError(error) && interrupted(error)) return 'interrupted';
    return { thrown: error };
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
