// Holds about 60 MiB of V8's own data and answers with digests over all of it.
//
// On each line of its input: "check" prints "digest HEX", "mutate K" changes K things and prints
// "mutated K", "quit" ends. The same lines give the same digests in every run.

'use strict';
const crypto = require('crypto');
const readline = require('readline');

let state = BigInt(process.argv[2] || 1);
function random() {
  // splitmix64, the upper 32 bits
  state = BigInt.asUintN(64, state + 0x9e3779b97f4a7c15n);
  let z = state;
  z = BigInt.asUintN(64, (z ^ (z >> 30n)) * 0xbf58476d1ce4e5b9n);
  z = BigInt.asUintN(64, (z ^ (z >> 27n)) * 0x94d049bb133111ebn);
  return Number((z ^ (z >> 31n)) >> 32n);
}
const below = (limit) => random() % limit;
function text(words) {
  const parts = [];
  for (let i = 0; i < words; i++) parts.push((random() & 0xffff).toString(16));
  return parts.join(' ');
}

const floats = new Float64Array(1 << 20).map((_, i) => i / 3);
const integers = new Uint32Array(2 << 20).map((_, i) => Math.imul(i, 2654435761));
const buffers = Array.from({ length: 4000 }, (_, i) => Buffer.alloc(500 + below(2000), `b${i} `));
const objects = Array.from({ length: 60000 }, (_, i) => ({ id: i, name: text(3), tags: [i % 7, i % 11], weight: i / 9 }));
const map = new Map();
for (let i = 0; i < 50000; i++) map.set(`key:${i}`, { value: below(1 << 30), text: text(3) });
const strings = Array.from({ length: 50000 }, () => text(10));
const set = new Set(integers.subarray(0, 50000));
const bigs = Array.from({ length: 20000 }, (_, i) => BigInt(i) ** 20n + BigInt(random()));

function bytesOf(array) {
  return Buffer.from(array.buffer, array.byteOffset, array.byteLength);
}

function digest() {
  const h = crypto.createHash('sha1');
  h.update(bytesOf(floats));
  h.update(bytesOf(integers));
  for (const b of buffers) h.update(b);
  for (let i = 0; i < objects.length; i += 500) h.update(JSON.stringify(objects.slice(i, i + 500)));
  for (const [key, value] of map) h.update(`${key}=${value.value},${value.text};`);
  for (const s of strings) h.update(s);
  for (const n of set) h.update(`${n},`);
  for (const n of bigs) h.update(n.toString(16));
  return h.digest('hex');
}

function mutate(count) {
  for (let n = 0; n < count; n++) {
    switch (below(8)) {
      case 0: floats[below(floats.length)] = random() / 7; break;
      case 1: integers[below(integers.length)] ^= random(); break;
      case 2: buffers[below(buffers.length)] = Buffer.alloc(500 + below(2000), text(2)); break;
      case 3: objects[below(objects.length)].name = text(4); break;
      case 4: map.set(`key:${below(70000)}`, { value: below(1 << 30), text: text(3) }); break;
      case 5: strings[below(strings.length)] = text(12); break;
      case 6: map.delete(`key:${below(70000)}`); break;
      default: bigs[below(bigs.length)] += BigInt(random());
    }
  }
}

console.log(`pid ${process.pid}\nready`);
readline.createInterface({ input: process.stdin }).on('line', (line) => {
  const words = line.trim().split(/\s+/);
  if (words[0] === 'check') console.log(`digest ${digest()}`);
  else if (words[0] === 'mutate') {
    mutate(Number(words[1]));
    console.log(`mutated ${words[1]}`);
  } else if (words[0] === 'quit') process.exit(0);
  else console.log(`what? ${line}`);
});
