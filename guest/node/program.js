// Runs a file as `node FILE ARGS` would, in this process, which has done nothing else so far.
'use strict';

const Module = require('module');
const path = require('path');

function replaceEnvironment(wanted) {
  for (const name of Object.keys(process.env)) delete process.env[name];
  for (const name of Object.keys(wanted)) process.env[name] = wanted[name];
}

// Whatever the runner loaded is forgotten: the program is the first module and the main one.
function forgetRunner() {
  for (const name of Object.keys(Module._cache)) delete Module._cache[name];
  for (const name of Object.keys(Module._pathCache)) delete Module._pathCache[name];
  process.mainModule = undefined;
}

exports.start = function start({ path: file, args, env }) {
  if (env) replaceEnvironment(env);
  process.argv = [process.execPath, path.resolve(file), ...(args || [])];
  process.execArgv = [];
  process.title = 'node';
  forgetRunner();
  // Called from the loop and not from here, so that no line of the runner is in the program's stack traces.
  setImmediate(Module.runMain, path.resolve(file));
};
