// rounds.js work|check LAST: round N changes four files with N, each by calls of another kind, and makes each durable; then it is
// acknowledged. What is there afterwards has to be a whole round in each file.
const fs = require("node:fs");
const { promisify } = require("node:util");

const LENGTH = 100_000;
const LINES = 30;
const [what, last] = [process.argv[1], Number(process.argv[2])];

const content = (n) => Buffer.from(`${n}\n`.repeat(LENGTH).slice(0, LENGTH / 2 + ((n * 7919) % (LENGTH / 2))));
const lines = (n) => Array.from({ length: LINES }, (_, i) => `${n} ${i} ${"x".repeat(i)}\n`);

function fail(text) {
  console.error(text);
  process.exit(1);
}

// The round that a file of one round holds.
function round(name) {
  const bytes = fs.existsSync(name) ? fs.readFileSync(name) : Buffer.alloc(0);
  if (bytes.length === 0) return 0;
  const n = Number(bytes.subarray(0, bytes.indexOf("\n")).toString());
  if (!bytes.equals(content(n))) fail(`${name}: ${bytes.length} bytes are not those of round ${n}`);
  return n;
}

// The last round of a file that has all of them, one after the other.
function rounds(name) {
  const text = fs.existsSync(name) ? fs.readFileSync(name, "latin1") : "";
  const all = text.split("\n").slice(0, -1);
  const n = all.length / LINES;
  if (!text.endsWith("\n") && text !== "") fail(`${name}: its last line is not whole`);
  if (!Number.isInteger(n)) fail(`${name}: ${all.length} lines, not whole rounds`);
  const wrong = all.findIndex((line, i) => !line.startsWith(`${Math.floor(i / LINES) + 1} ${i % LINES} `));
  if (wrong >= 0) fail(`${name}: line ${wrong}: ${all[wrong]}`);
  return n;
}

const found = () => [round("sync.dat"), rounds("append.dat"), round("promise.dat"), round("parts.dat")];

async function whole(file, buffer) {
  for (let at = 0; at < buffer.length; ) at += (await file.write(buffer, at, buffer.length - at, at)).bytesWritten;
}

async function work() {
  // After a kill in the middle of a round that round is made once more, or files that are behind would fall further behind.
  let n = Math.min(...found());
  const sync = fs.openSync("sync.dat", fs.constants.O_RDWR | fs.constants.O_CREAT);
  const promise = await fs.promises.open("promise.dat", fs.constants.O_RDWR | fs.constants.O_CREAT);
  const parts = fs.openSync("parts.dat", fs.constants.O_RDWR | fs.constants.O_CREAT);
  const append = fs.openSync("append.dat", "a");
  let appended = rounds("append.dat");
  for (;;) {
    n++;
    const buffer = content(n);
    fs.ftruncateSync(sync, buffer.length);
    for (let at = 0; at < buffer.length; ) at += fs.writeSync(sync, buffer, at, Math.min(30_000, buffer.length - at), at);
    fs.fsyncSync(sync);

    if (appended < n) for (const line of lines(n)) fs.appendFileSync(append, line);
    fs.fdatasyncSync(append);
    appended = n;

    await promise.truncate(buffer.length);
    await whole(promise, buffer);
    await (n % 2 ? promise.sync() : promise.datasync());

    // Four threads at once, by callbacks.
    const quarter = Math.ceil(buffer.length / 4);
    await promisify(fs.ftruncate)(parts, buffer.length);
    await Promise.all(
      [0, 1, 2, 3].map((i) => {
        const part = buffer.subarray(i * quarter, (i + 1) * quarter);
        return promisify(fs.writev)(parts, [part.subarray(0, 9), part.subarray(9)], i * quarter);
      }),
    );
    await promisify(fs.fsync)(parts);
    fs.writeSync(1, `ack ${n}\n`);
  }
}

if (what === "check") {
  const all = found();
  const [first, newest] = [Math.min(...all), Math.max(...all)];
  const inOrder = all.every((n, i) => i === 0 || n <= all[i - 1]);
  if (first < last || newest > first + 1 || !inOrder) fail(`round ${last} was acknowledged; the files hold ${all.join(", ")}`);
} else {
  work();
}
