// Frames on the control channel, once a session is open.
'use strict';

const { buffer } = host;
const bytesFrom = (text) => buffer.from(text, 'utf8');

// Reads whole numbers that a double cannot hold as `int` values. Newer Nodes could show a reviver the text,
// older ones cannot, so the text is looked at only if it has such a number at all.
const NUMBER = /"(?:[^"\\]+|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/gs;
function parse(text) {
  if (!/\d{16}/.test(text)) return JSON.parse(text);
  try {
    return JSON.parse(
      text.replace(NUMBER, (token) =>
        /^-?\d{16,}$/.test(token) && !Number.isSafeInteger(Number(token)) ? `{"$":"int","v":"${token}"}` : token
      )
    );
  } catch {
    return JSON.parse(text);
  }
}

// Opens the channel: `receive` gets each message, `ended` is called when there will be no more.
exports.open = function open(receive, ended) {
  const socket = new host.net.Socket({ fd: host.channel, readable: true, writable: true });
  let pieces = [];
  let held = 0;
  let wanted = -1;

  const take = (count) => {
    const all = pieces.length === 1 ? pieces[0] : Reflect.apply(buffer.concat, null, [pieces]);
    const rest = Reflect.apply(buffer.subarray, all, [count]);
    pieces = rest.length > 0 ? [rest] : [];
    held -= count;
    return Reflect.apply(buffer.subarray, all, [0, count]);
  };

  const feed = (piece) => {
    pieces.push(piece);
    held += piece.length;
    for (;;) {
      if (wanted < 0) {
        if (held < 4) return;
        wanted = Reflect.apply(buffer.readUInt32LE, take(4), [0]);
        if (wanted > host.largestFrame) return ended();
      }
      if (held < wanted) return;
      const text = Reflect.apply(buffer.toString, take(wanted), ['utf8']);
      wanted = -1;
      let message;
      try {
        message = parse(text);
      } catch {
        return ended();
      }
      receive(message);
    }
  };

  const on = (event, call) => Reflect.apply(buffer.on, socket, [event, call]);
  on('data', feed);
  on('end', ended);
  on('close', ended);
  on('error', ended);
  const { write } = socket;

  return {
    // `text` is the JSON of one message. `sent` is called when the kernel has it.
    send(text, sent) {
      const body = bytesFrom(text);
      const head = buffer.allocUnsafe(4);
      Reflect.apply(buffer.writeUInt32LE, head, [body.length, 0]);
      Reflect.apply(write, socket, [Reflect.apply(buffer.concat, null, [[head, body]]), sent]);
    },
  };
};
exports.parse = parse;
