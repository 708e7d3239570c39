// Play a run that cflkit has exported (book/_ext/playground_export.py) with the page's own script, and print what comes
// out: node tests/playground.js EXPORT. Everything drawn, batches and first models among it, is the export's.
const fs = require("node:fs"), path = require("node:path"), vm = require("node:vm");
const folder = process.env.PLAYGROUND || path.join(__dirname, "..", "book", "_static", "playground");
for (const name of ["draws", "federation", "network", "vectors", "methods", "run", "digits"])
  vm.runInThisContext(fs.readFileSync(path.join(folder, `${name}.js`), "utf8"), { filename: name });
const playground = vm.runInThisContext("playground");

function play(given) {
  const pool = Float64Array.from(given.pool, (pixel) => pixel / given.scale);
  const draws = {
    init: (j) => Float64Array.from(given.init[j]),
    sample: (t) => given.schedule[t - 1],
    batches: (t, i) => given.batches[t][i],
    groups: () => given.first,
    partition: () => given.first,
  };
  const federation = { pool, clients: given.clients, tests: given.tests, domains: given.tests };
  const run = playground.run.make(federation, given.method, given.options, draws);
  for (const _ of given.schedule) run.step();
  return run.history.map(({ server, models, balanced, own, ari }) => ({
    models: models.map((w) => [...w]), assign: server.assign || null, balanced, own, ari: Number.isNaN(ari) ? null : ari,
  }));
}

const given = JSON.parse(fs.readFileSync(process.argv[2], "utf8"));
if (given.situations) { // the numbers of the last round of each
  console.log(JSON.stringify(given.situations.map((address) => {
    const { round, ...words } = Object.fromEntries(new URLSearchParams(address));
    const { run } = playground.run.begin({ ...given.first, ...words });
    while (run.history.length <= Number(round)) run.step();
    const { balanced, own, ari, byLabel, groups } = run.history.at(-1);
    return { balanced, own, ari, byLabel, groups };
  })));
} else if (given.method) console.log(JSON.stringify(play(given)));
else { // how the digits are unpacked and turned, and what k-means makes of points
  const { unpack, turned } = playground.federation, { x } = unpack(playground.digits);
  const points = given.points.map((point) => Float64Array.from(point));
  const group = playground.vectors.kmeans(points, given.k, 20, playground.draws.generator(0));
  console.log(JSON.stringify({ x: [...x], turned: [1, 2, 3].map((times) => [...turned(x.subarray(0, 64), times)]), group }));
}
