// Three worker threads, each with 20 MiB of memory that WebAssembly fills, changes and sums; JavaScript
// sums it too. Answers lines as checksum.js does.

'use strict';
const { Worker, isMainThread, parentPort, workerData } = require('worker_threads');

const WORKERS = 3;
const PAGES = 320; // of 64 KiB
const MORE = 2; // with each change

// The module, by hand. Numbers are signed LEB128, which is unsigned too as long as bit 6 is clear.
function leb(n) {
  const bytes = [];
  for (;;) {
    const low = n & 0x7f;
    n >>= 7;
    if ((n === 0 && !(low & 0x40)) || (n === -1 && low & 0x40)) return [...bytes, low];
    bytes.push(low | 0x80);
  }
}
const I32 = 0x7f;
const get = (local) => [0x20, local];
const set = (local) => [0x21, local];
const number = (n) => [0x41, ...leb(n)];
const load = [0x28, 2, 0];
const store = [0x36, 2, 0];
const [add, sub, mul, rem, and, xor, shr, less] = [0x6a, 0x6b, 0x6c, 0x70, 0x71, 0x73, 0x76, 0x49];
const repeatIf = [0x0d, 0]; // to the beginning of the loop around it
const loop = (...code) => [0x03, 0x40, ...code.flat(), 0x0b];
const next = (x) => [...get(x), ...number(1103515245), mul, ...number(12345), add, ...set(x)];
const sized = (...parts) => [...leb(parts.flat().length), ...parts.flat()];
const section = (id, ...parts) => [id, ...sized(...parts)];
const body = (locals, ...code) => sized(locals ? [1, locals, I32] : [0], ...code, [0x0b]);
const name = (text) => [text.length, ...Buffer.from(text)];

const fill = body(1, // seed, bytes; address
  loop(next(0), get(2), get(0), number(18), [shr], store,
    get(2), number(4), [add], set(2), get(2), get(1), [less], repeatIf));
const sum = body(2, // bytes; hash, address
  loop(get(1), number(31), [mul], get(2), load, [add], set(1),
    get(2), number(4), [add], set(2), get(2), get(0), [less], repeatIf), get(1));
const change = body(1, // seed, times, bytes; address
  loop(next(0), get(0), number(4), [shr], get(2), [rem], number(-4), [and], set(3),
    get(3), get(3), load, get(0), number(7), [shr], [xor], store,
    get(1), number(1), [sub], set(1), get(1), repeatIf));
const module_bytes = Uint8Array.from([
  0, 0x61, 0x73, 0x6d, 1, 0, 0, 0,
  ...section(1, [3], [0x60, 2, I32, I32, 0], [0x60, 1, I32, 1, I32], [0x60, 3, I32, I32, I32, 0]),
  ...section(3, [3, 0, 1, 2]),
  ...section(5, [1, 0], leb(PAGES)),
  ...section(7, [4], name('fill'), [0, 0], name('sum'), [0, 1], name('change'), [0, 2], name('memory'), [2, 0]),
  ...section(10, [3], fill, sum, change),
]);

function work() {
  const { fill, sum, change, memory } =
    new WebAssembly.Instance(new WebAssembly.Module(module_bytes)).exports;
  let seed = workerData * 1000;
  fill(seed, memory.buffer.byteLength);
  parentPort.on('message', (times) => {
    if (times > 0) {
      memory.grow(MORE);
      change(++seed, times, memory.buffer.byteLength);
      return parentPort.postMessage(times);
    }
    const told = sum(memory.buffer.byteLength);
    let hash = 0;
    for (const word of new Uint32Array(memory.buffer)) hash = (Math.imul(hash, 31) + word) | 0;
    parentPort.postMessage(hash === told ? (hash >>> 0).toString(16) : `sums differ: ${hash} ${told}`);
  });
  parentPort.postMessage('ready');
}

async function main() {
  const seed = Number(process.argv[2] || 1);
  const workers = Array.from({ length: WORKERS }, (_, i) => new Worker(__filename, { workerData: seed + i }));
  const answer = (worker) => new Promise((resolve, reject) => {
    worker.once('message', resolve);
    worker.once('error', reject);
  });
  await Promise.all(workers.map(answer));
  const all = (message) => {
    const answers = Promise.all(workers.map(answer));
    workers.forEach((worker) => worker.postMessage(message));
    return answers;
  };
  console.log(`pid ${process.pid}\nready`);
  for await (const line of require('readline').createInterface({ input: process.stdin })) {
    const words = line.trim().split(/\s+/);
    if (words[0] === 'check') console.log(`digest ${(await all(0)).join(' ')}`);
    else if (words[0] === 'mutate') {
      await all(Number(words[1]));
      console.log(`mutated ${words[1]}`);
    } else if (words[0] === 'quit') process.exit(0);
    else console.log(`what? ${line}`);
  }
}

if (isMainThread) main();
else work();
