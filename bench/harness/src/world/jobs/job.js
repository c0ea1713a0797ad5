// Objects, strings, buffers and JSON in eight worker threads, and a rest.
const { Worker, isMainThread, parentPort, workerData } = require("worker_threads");

function work(seed) {
  let state = seed;
  const draw = (bound) => (state = (state * 1103515245 + 12345) % 2147483648) % bound;
  const records = [];
  for (let i = 0; i < 40000; i++) {
    records.push({ id: i, name: "n" + draw(1e6).toString(36), tags: [draw(100), draw(100)] });
  }
  let sum = 0;
  for (let round = 0; round < 3; round++) {
    const again = JSON.parse(JSON.stringify(records));
    again.sort((a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : a.id - b.id));
    sum += again[round * 1000].id;
  }
  const buffers = [];
  for (let i = 0; i < 3000; i++) {
    buffers[draw(200)] = Buffer.alloc(1000 + draw(60000), i % 256);
  }
  for (const buffer of buffers) if (buffer) sum += buffer[0] + buffer.length;
  const map = new Map();
  for (const { name, id } of records) map.set(name, (map.get(name) || 0) + id);
  return sum + map.size;
}

if (!isMainThread) {
  parentPort.postMessage(work(workerData));
} else {
  const results = [];
  let left = 8;
  for (let i = 0; i < 8; i++) {
    new Worker(__filename, { workerData: i + 1 }).on("message", (sum) => {
      results[i] = sum;
      if (--left === 0) {
        console.log(results.join(" "), work(9));
        console.log("ready");
        process.stdin.resume();
      }
    });
  }
}
