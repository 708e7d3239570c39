// Draw what pages without JavaScript, and print before it has run, show of each preset: node playground_still.js
"use strict";
const fs = require("node:fs"), path = require("node:path"), vm = require("node:vm");
const folder = path.join(__dirname, "..", "_static", "playground");
for (const name of ["draws", "federation", "network", "vectors", "methods", "run", "draw", "page", "digits"])
  vm.runInThisContext(fs.readFileSync(path.join(folder, `${name}.js`), "utf8"), { filename: name });
const { draw, page } = vm.runInThisContext("playground");
const presets = JSON.parse(fs.readFileSync(path.join(__dirname, "playground.json"), "utf8"));

for (const [name, { situation: address }] of Object.entries(presets)) {
  const situation = page.read(address), { federation, run } = page.begin(situation), { round, method } = situation;
  while (run.history.length <= round) run.step();
  const found = draw.groups(run.history[round].server);
  const tiles = federation.clients.map((_, i) => {
    const { kind, letter } = draw.look(run.history[round], run.history[round - 1], i, found);
    return draw.tile(federation, i, true).replace('class="pg-tile"', `class="${kind}"`).replace("></text>", `>${letter}</text>`);
  });
  const whole = `<div class="pg-tiles">${tiles.join("\n")}</div>\n<p class="pg-legend">${draw.legend(federation)}</p>\n` +
    `<div class="pg-charts">${draw.charts(run, method, round, [])}</div>\n<p class="pg-says">${draw.says(run, round)}</p>\n`;
  const file = path.join(__dirname, "playground_stills", `${name}.html`);
  fs.writeFileSync(`${file}.part`, whole);
  fs.renameSync(`${file}.part`, file);
}
