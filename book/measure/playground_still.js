// Draw the round of each preset, which pages have before their scripts run, or without: node playground_still.js
"use strict";
const fs = require("node:fs"), path = require("node:path"), vm = require("node:vm");
const folder = path.join(__dirname, "..", "_static", "playground"), pages = path.join(__dirname, "..", "_ext");
for (const name of ["vectors", "draws", "federation", "network", "methods", "run", "draw", "digits"])
  vm.runInThisContext(fs.readFileSync(path.join(folder, `${name}.js`), "utf8"), { filename: name });
const { draw, run: runs } = vm.runInThisContext("playground");
const { knobs, methods, presets } = JSON.parse(fs.readFileSync(path.join(pages, "playground.json"), "utf8"));
const first = Object.fromEntries(Object.entries(knobs).map(([name, knob]) => [name, knob.first]));

for (const [name, { situation }] of Object.entries(presets)) {
  const now = { ...first, ...Object.fromEntries(new URLSearchParams(situation)) }, run = runs.begin(now);
  const method = { ...methods[now.method], name: now.method, title: knobs.method.values[now.method] };
  run.upTo(Number(now.round));
  const scene = draw.scene(run, Number(now.round), method, [], name === "full" ? 4 : 2);
  const file = path.join(pages, "playground_stills", `${name}.json`);
  fs.writeFileSync(`${file}.part`, `${JSON.stringify(scene, null, 1)}\n`);
  fs.renameSync(`${file}.part`, file);
}
