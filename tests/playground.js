// Play a run that cflkit has exported (book/measure/playground_export.py) with the page's own script, and print what
// comes out: node tests/playground.js EXPORT. Everything drawn, batches and first models among it, is the export's.
const fs = require("node:fs"), path = require("node:path"), vm = require("node:vm");
const folder = process.env.PLAYGROUND || path.join(__dirname, "..", "book", "_static", "playground");
for (const name of ["vectors", "draws", "federation", "network", "methods", "run", "digits"])
  vm.runInThisContext(fs.readFileSync(path.join(folder, `${name}.js`), "utf8"), { filename: name });
const playground = vm.runInThisContext("playground"), { PIXELS } = playground.federation;

function play(given) {
  const pool = Float64Array.from(given.pool, (pixel) => pixel / given.scale);
  const images = ({ rows, y }) => rows.map((row, i) => ({ x: pool.slice(row * PIXELS, (row + 1) * PIXELS), y: y[i] }));
  const federation = {
    clients: given.clients.map((client) => ({ ...client, data: images(client) })),
    tests: given.tests.map(images),
    domains: given.tests,
  };
  const draws = {
    init: (j) => Float64Array.from(given.init[j]),
    sample: (t) => given.schedule[t - 1],
    batches: (t, i) => given.batches[t][i],
    groups: () => given.first,
    partition: () => given.first,
  };
  const run = playground.run.make(federation, given.method, given.options, draws);
  run.upTo(given.schedule.length);
  return run.history.map(({ server, models, balanced, own, groups }) => ({
    models: models.map((w) => [...w]), assign: server.assign ?? null, balanced, own, ari: groups?.ari ?? null,
  }));
}

const given = JSON.parse(fs.readFileSync(process.argv[2], "utf8"));
if (given.situations) { // the numbers of the last round of each
  console.log(JSON.stringify(given.situations.map((address) => {
    const { round, ...words } = Object.fromEntries(new URLSearchParams(address));
    const { balanced, own, groups } = playground.run.begin({ ...given.first, ...words }).upTo(Number(round));
    return { balanced, own, ari: groups?.ari, byLabel: groups?.byLabel, groups: groups?.count };
  })));
} else if (given.method) console.log(JSON.stringify(play(given)));
else { // how the digits are unpacked and turned, and what k-means makes of points
  const { unpack, turned } = playground.federation, { train, test } = unpack(playground.digits);
  const points = given.points.map((point) => Float64Array.from(point));
  console.log(JSON.stringify({
    x: [...train, ...test].flatMap(({ x }) => [...x]), turned: [1, 2, 3].map((times) => [...turned(train[0].x, times)]),
    group: playground.vectors.kmeans(points, given.k, 20, playground.draws.generator(0)),
  }));
}
