// `display(...)`: what a cell wants to show.
'use strict';

const { repr } = load('values.js');
const { types, buffer } = host;
const BUNDLE = Symbol.for('Jupyter.display');
const METHODS = [['toHtml', 'text/html'], ['toSvg', 'image/svg+xml'], ['toPng', 'image/png'], ['toMarkdown', 'text/markdown']];
const MIME = /^[\w.+-]+\/[\w.+-]+$/;

function isObject(value) {
  return value !== null && (typeof value === 'object' || typeof value === 'function');
}

// `image/*` is base64, all else is text.
function piece(mime, data) {
  if (types.isTypedArray(data) || types.isAnyArrayBuffer(data)) {
    const bytes = types.isTypedArray(data) ? buffer.from(data.buffer, data.byteOffset, data.byteLength) : buffer.from(data);
    return Reflect.apply(buffer.toString, bytes, [mime.startsWith('image/') ? 'base64' : 'utf8']);
  }
  if (typeof data === 'string') {
    if (mime === 'image/svg+xml' && data.trimStart().startsWith('<')) return Reflect.apply(buffer.toString, buffer.from(data, 'utf8'), ['base64']);
    return data;
  }
  return isObject(data) ? JSON.stringify(data) : String(data);
}

// The methods that give something to show, called; some answer later.
function offers(value) {
  if (!isObject(value)) return null;
  if (typeof value[BUNDLE] === 'function') return value[BUNDLE]();
  const bundle = {};
  for (const [method, mime] of METHODS) if (typeof value[method] === 'function') bundle[mime] = value[method]();
  if (Object.keys(bundle).length > 0) return bundle;
  const names = Object.keys(value);
  return names.length > 0 && names.every((name) => MIME.test(name)) ? value : null;
}

exports.isShown = (value) => {
  try {
    return isObject(value) && typeof value[BUNDLE] === 'function';
  } catch {
    return false;
  }
};

// The `data` of a display as an object of texts, or a promise of one.
exports.bundle = function bundle(value) {
  const offered = offers(value);
  if (offered === null || offered === undefined) return { 'text/plain': typeof value === 'string' ? value : repr(value) };
  if (types.isPromise(offered)) return Reflect.apply(host.then, offered, [texts]);
  return texts(offered);
};

function texts(offered) {
  const data = {};
  for (const mime of Object.keys(offered)) {
    const part = offered[mime];
    if (part === undefined || part === null || types.isPromise(part)) continue;
    data[mime] = piece(mime, part);
  }
  return data;
}
