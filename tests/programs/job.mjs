// JSON, buffers, typed arrays, compression, worker threads, a child process.
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { Worker, isMainThread, parentPort, workerData } from "node:worker_threads";
import { fileURLToPath } from "node:url";
import zlib from "node:zlib";

const digest = (data) => createHash("sha256").update(data).digest("hex").slice(0, 16);
let state = 1;
const random = () => (state = (Math.imul(state, 1103515245) + 12345) & 0x7fffffff);

function buffers(rounds) {
  let total = Buffer.alloc(0);
  const kept = [];
  for (let i = 0; i < rounds; i++) {
    kept.push(Buffer.alloc(1 + (random() % 60000), i % 256));
    if (kept.length > 50) kept.splice(random() % 50, 1);
    if (i % 20 === 0) total = Buffer.concat([total, ...kept.slice(0, 5)]);
  }
  return digest(total);
}

if (isMainThread) {
  const objects = [];
  for (let i = 0; i < 60000; i++) objects.push({ id: i, name: "n".repeat(i % 40), list: [i, i / 2, String(i)] });
  const text = JSON.stringify(objects);
  console.log(text.length, digest(text), JSON.parse(text).length);
  console.log(buffers(4000));
  const packed = zlib.gzipSync(text, { level: 4 });
  console.log(digest(zlib.gunzipSync(packed)), digest(zlib.brotliDecompressSync(zlib.brotliCompressSync(text.slice(0, 300000)))));
  const array = new Float64Array(3_000_000).map((_, i) => Math.sqrt(i));
  console.log(array.sort()[2_999_999]);
  const grow = new ArrayBuffer(8 << 20);
  console.log(new Uint8Array(structuredClone(grow, { transfer: [grow] })).length);
  const workers = [1, 2, 3, 4].map((n) => new Promise((done, fail) => {
    const worker = new Worker(fileURLToPath(import.meta.url), { workerData: n });
    worker.on("message", done);
    worker.on("error", fail);
  }));
  for (const message of await Promise.all(workers)) console.log(message.n, message.digest, message.bytes.byteLength);
  console.log(execFileSync(process.execPath, ["-e", "console.log(Buffer.alloc(5e6, 'ab').length)"]).toString().trim());
  try {
    Buffer.alloc(2 ** 52);
  } catch (error) {
    console.log(error.name);
  }
  process.exit(6);
} else {
  state = workerData;
  const bytes = new Uint8Array(1_000_000).fill(workerData);
  parentPort.postMessage({ n: workerData, digest: buffers(1500), bytes }, [bytes.buffer]);
}
