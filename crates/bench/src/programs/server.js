// A small in-memory store of documents: a text and a series of numbers each, in typed arrays.
// "P id textBytes numberBytes\n" and the bytes put one; "G id\n" reads all of one.
'use strict';

const documents = new Map();
let pending = [];
let pendingBytes = 0;
let wantedBytes = 1;

function put(id, text, numbers) {
  const held = documents.get(id);
  if (held && held.text.length === text.length && held.numbers.byteLength === numbers.length) {
    held.text.set(text);
    new Uint8Array(held.numbers.buffer).set(numbers);
    return;
  }
  const bytes = new Uint8Array(text.length);
  bytes.set(text);
  const series = new Int32Array(numbers.length / 4);
  new Uint8Array(series.buffer).set(numbers);
  documents.set(id, { text: bytes, numbers: series });
}

function get(id) {
  const { text, numbers } = documents.get(id);
  const words = new Int32Array(text.buffer);
  let hash = 0x811c9dc5;
  for (let i = 0; i < words.length; i++) hash = Math.imul(hash ^ words[i], 0x01000193);
  let sum = 0;
  for (let i = 0; i < numbers.length; i++) sum += numbers[i];
  return `${id} ${(hash >>> 0).toString(16).padStart(8, '0')} ${sum}\n`;
}

// Serves all whole requests in `data`; gives back what is left, and how much is needed to go on.
function serve(data) {
  let answers = '';
  let begin = 0;
  let wanted = 1;
  for (;;) {
    const end = data.indexOf(10, begin);
    if (end < 0) break;
    const fields = data.toString('latin1', begin, end).split(' ');
    const id = Number(fields[1]);
    if (fields[0] === 'G') {
      answers += get(id);
      begin = end + 1;
      continue;
    }
    const middle = end + 1 + Number(fields[2]);
    const next = middle + Number(fields[3]);
    if (next > data.length) {
      wanted = next - begin;
      break;
    }
    put(id, data.subarray(end + 1, middle), data.subarray(middle, next));
    answers += `ok ${id}\n`;
    begin = next;
  }
  if (answers) process.stdout.write(answers);
  return [data.subarray(begin), wanted];
}

process.stdin.on('data', (chunk) => {
  pending.push(chunk);
  pendingBytes += chunk.length;
  if (pendingBytes < wantedBytes) return;
  const data = pending.length === 1 ? pending[0] : Buffer.concat(pending);
  const [rest, wanted] = serve(data);
  pending = rest.length ? [rest] : [];
  pendingBytes = rest.length;
  wantedBytes = wanted;
});
