// Draw what pages without JavaScript show of each preset: node playground_still.js
"use strict";
const fs = require("node:fs"), path = require("node:path"), vm = require("node:vm");
const folder = path.join(__dirname, "..", "_static", "playground");
for (const name of ["draws", "federation", "network", "vectors", "methods", "run", "draw", "digits"])
  vm.runInThisContext(fs.readFileSync(path.join(folder, `${name}.js`), "utf8"), { filename: name });
const { draw, run: runs } = vm.runInThisContext("playground");
const { knobs, presets } = JSON.parse(fs.readFileSync(path.join(__dirname, "..", "_ext", "playground.json"), "utf8"));
const first = Object.fromEntries(Object.entries(knobs).map(([name, knob]) => [name, knob.first]));

for (const [name, { situation }] of Object.entries(presets)) {
  const { round, ...given } = Object.fromEntries(new URLSearchParams(situation)), { method } = given, t = Number(round);
  const { federation, run } = runs.begin({ ...first, ...given });
  while (run.history.length <= t) run.step();
  const found = draw.groups(run.history[t].server);
  const tiles = federation.clients.map((_, i) => {
    const { kind, letter } = draw.look(run.history[t], run.history[t - 1], i, found);
    return draw.tile(federation, i, true).replace('class="pg-tile"', `class="${kind}"`).replace("></text>", `>${letter}</text>`);
  });
  const whole = `<div class="pg-tiles">${tiles.join("\n")}</div>\n<p class="pg-legend">${draw.legend(federation)}</p>\n` +
    `<div class="pg-charts">${draw.charts(run, method, t, [])}</div>\n` +
    `<p class="pg-says">${draw.says(run, t, knobs.method.values[method])}</p>\n`;
  const file = path.join(__dirname, "..", "_ext", "playground_stills", `${name}.html`);
  fs.writeFileSync(`${file}.part`, whole);
  fs.renameSync(`${file}.part`, file);
}
