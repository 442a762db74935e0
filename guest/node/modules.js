// `require` and `import()` as a cell has them: from the work directory, within the list of a policy.
'use strict';

const checks = load('checks.js');
const { Module, path, global } = host;

const OWN_PROPERTY = { writable: true, configurable: true, enumerable: false };

exports.open = function open(directory, allowed) {
  const filename = path.join(directory, '[cell]');
  const main = new Module(filename, null);
  main.filename = filename;
  main.paths = Module._nodeModulePaths(directory);
  // A module's own `import()` resolves from its file, on every version and without a flag.
  main._compile('module.exports = { require, import: (name, options) => import(name, options) };', filename);
  const own = main.exports;
  main.exports = {};
  if (allowed !== null) limit(directory, allowed);
  for (const [name, value] of Object.entries({ require: own.require, module: main, exports: main.exports, __filename: filename, __dirname: directory })) {
    Object.defineProperty(global, name, { ...OWN_PROPERTY, value });
  }

  const meta = { url: `file://${filename}`, filename, dirname: directory };
  const importModule = (name, options, wanted) => {
    const text = `${name}`;
    checks.module(text, allowed);
    const found = own.import(text, options);
    if (!wanted || wanted.length === 0) return found;
    return Reflect.apply(host.then, found, [
      (module) => {
        for (let i = 0; i < wanted.length; i++) {
          if (!(wanted[i] in module)) throw host.local.error('SyntaxError', `The requested module '${text}' does not provide an export named '${wanted[i]}'`);
        }
        return module;
      },
    ]);
  };
  return { meta, importModule: host.local.rejecting(importModule) };
};

// Cells and the files of the work directory ask only for what is listed; packages ask for what they need.
function limit(directory, allowed) {
  const { _load } = Module;
  Module._load = function (request, parent, ...rest) {
    const from = parent && parent.filename;
    if (typeof from === 'string' && from.startsWith(`${directory}/`) && !from.includes('/node_modules/')) checks.module(request, allowed);
    return Reflect.apply(_load, this, [request, parent, ...rest]);
  };
  const { getBuiltinModule } = host.process;
  if (getBuiltinModule) {
    host.process.getBuiltinModule = function (name) {
      checks.module(name, allowed);
      return Reflect.apply(getBuiltinModule, this, [name]);
    };
  }
}
