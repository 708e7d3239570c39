/* What is seen, as strings of SVG and HTML: no page is needed, so that Node can draw the pictures for print and for pages
   without JavaScript (book/_ext/playground_still.js). Colours come from the book's style sheets. */
"use strict";

playground.draw = (() => {
  const { PIXELS, SIDE } = playground.federation, KINDS = "abcd", ROUNDS = 40;
  const SHAPES = ['<circle r="4.6"/>', '<path d="M-4.2-4.2H4.2V4.2H-4.2Z"/>', '<path d="M0-5 5 4H-5Z"/>',
    '<path d="M0-5.6 4.8 0 0 5.6-4.8 0Z"/>']; // disc, square, triangle, diamond
  const percent = (value) => `${Math.round(100 * value)}%`, two = (value) => value.toFixed(2).replace("-", "−");

  /* A digit of `size` pixels: the grey and the dark cells, row by row, as two paths. */
  function digit(pool, row, left, top, size) {
    const cell = size / SIDE, short = (value) => +value.toFixed(1);
    return [0.25, 0.65].map((least) => {
      let d = "";
      for (let r = 0; r < SIDE; r++)
        for (let c = 0, end; c < SIDE; c = end + 1) {
          for (end = c; end < SIDE && pool[row * PIXELS + r * SIDE + end] >= least;) end++;
          if (end > c) d += `M${short(left + c * cell)} ${short(top + r * cell)}h${short((end - c) * cell)}`;
        }
      return `<path stroke-width="${short(cell + 0.1)}" d="${d}"/>`;
    }).join("");
  }

  /* A client: its true group as a shape, its group as a letter, some of its digits, spread over its label mix. */
  function tile({ pool, clients }, i, small) {
    const { rows, truth } = clients[i], count = small ? 1 : 4, size = small ? 30 : 24, top = small ? 7 : 19;
    const digits = Array.from({ length: count }, (_, j) => digit(pool, rows[Math.floor((j + 0.5) * rows.length / count)],
      small ? 5 : 7 + 28 * (j % 2), top + size / 16 + 27 * (j >> 1), size)).join("");
    return `<svg class="pg-tile" viewBox="0 0 66 ${small ? 44 : 74}" aria-hidden="true"><rect x="1" y="1" width="64" ` +
      `height="${small ? 42 : 72}" rx="5"/><g class="pg-digits">${digits}</g><g class="pg-shape" transform="translate(${small ? "53 33" : "55 10"})">` +
      `${SHAPES[truth]}</g><text x="${small ? 47 : 7}" y="${small ? 17 : 15}"></text></svg>`;
  }

  /* Letter, size and colour of each group; if there are more than four, the smaller ones are grey. */
  function groups({ assign, centres = [] }) {
    const sizes = centres.map((_, k) => assign.filter((own) => own === k).length);
    const large = [...sizes.keys()].sort((a, b) => sizes[b] - sizes[a]).slice(0, 4).sort((a, b) => a - b);
    return sizes.map((size, k) => ({ letter: String.fromCharCode(65 + k % 26), size, kind: KINDS[large.indexOf(k)] || "none" }));
  }

  /* What a client's tile looks like in a round. */
  function look(entry, before, i, found) {
    const { assign } = entry.server, group = assign && found[assign[i]], old = before && before.server.assign;
    const idle = entry.took.length && !entry.took.includes(i), moved = group && old && old[i] >= 0 && old[i] !== assign[i];
    const kind = `pg-tile pg-${group ? group.kind : "none"}${idle ? " pg-idle" : ""}${moved ? " pg-moved" : ""}`;
    return { kind, letter: group ? group.letter : "", idle, moved };
  }

  /* A chart over rounds. A series: {values, name, kind, dashed, faint}; its name stands at its end. */
  function chart(title, series, low) {
    const W = 350, H = 196, L = 36, R = 88, T = 26, B = 34;
    const x = (t) => L + t / ROUNDS * (W - L - R), y = (v) => T + (1 - v) / (1 - low) * (H - T - B);
    const shown = series.map((one) => ({ ...one, points: one.values.map((v, t) => [t, v]).filter(([, v]) => !Number.isNaN(v)) }))
      .filter(({ points }) => points.length);
    let above = -Infinity; // names keep a line's distance from each other
    const names = shown.map(({ points, name, kind }) => ({ name, kind, x: x(points.at(-1)[0]), at: y(points.at(-1)[1]) }))
      .sort((a, b) => a.at - b.at).map((one) => ({ ...one, at: above = Math.max(one.at, above + 13) }));
    const over = Math.max(0, above - (H - B + 4));
    const text = (kind, left, top, words) => `<text class="${kind}" x="${left.toFixed(1)}" y="${top.toFixed(1)}">${words}</text>`;
    return `<svg class="cfl pg-chart" viewBox="0 0 ${W} ${H}" aria-hidden="true">${text("who", 0, 14, title)}` +
      (low < 0 ? [-0.5, 0, 0.5, 1] : [0, 0.5, 1]).map((v) => `<path class="grid" d="M${L} ${y(v)}H${W - R}"/>` +
        text("tick end", L - 5, y(v) + 4, low < 0 ? String(v).replace("-", "−") : percent(v))).join("") +
      [0, 10, 20, 30, 40].map((t) => text("tick middle", x(t), H - B + 15, t)).join("") +
      text("tick middle", x(ROUNDS / 2), H - 4, "rounds") +
      shown.map(({ points, kind, dashed, faint }) => `<polyline class="line ${kind}${dashed ? " dashed" : ""}${faint ? " faint" : ""}" ` +
        `points="${points.map(([t, v]) => `${x(t).toFixed(1)},${y(v).toFixed(1)}`).join(" ")}"/>`).join("") +
      names.map((one) => text(`name ${one.kind}`, one.x + 5, one.at - over + 4, one.name)).join("") + "</svg>";
  }

  /* Both charts of a run up to round t; `others`: accuracies of other methods on the same federation. */
  function charts(run, method, t, others) {
    const upTo = (key) => run.history.slice(0, t + 1).map((entry) => entry[key]), kind = `pg-${method}`;
    return chart("Accuracy", [...others, { values: upTo("balanced"), name: "all labels", kind },
      { values: upTo("own"), name: "own labels", kind, dashed: true }], 0) +
      (!run.history[t].server.assign ? "" : chart("Agreement of the groups (Rand index)", [{ values: upTo("ari"), name: "true groups", kind },
        { values: upTo("byLabel"), name: "main labels", kind, dashed: true }], -0.5));
  }

  /* A round in words. */
  function says(run, t, method) {
    const { balanced, own, groups: count, moved, ari, byLabel, took } = run.history[t];
    const clients = t ? `${took.length} clients took part` : "no round has run yet";
    const found = count ? ` ${count} ${count === 1 ? "group" : "groups"}, ${moved} ${moved === 1 ? "client" : "clients"} changed.` : "";
    const agree = Number.isNaN(ari) ? "" : ` Agreement with the true groups ${two(ari)}, with the most frequent labels ${two(byLabel)}.`;
    return `${method}, round ${t}: ${clients}. Accuracy ${percent(balanced)} on all labels, ${percent(own)} on each client's own.${found}${agree}`;
  }

  /* The round as a table: a row a client. */
  function table(federation, run, t, method) {
    const entry = run.history[t], found = groups(entry.server);
    const rows = federation.clients.map(({ truth, label }, i) => {
      const { letter, idle, moved } = look(entry, run.history[t - 1], i, found);
      return [i + 1, federation.domains[truth].says, label, letter || "–", t ? (idle ? "no" : "yes") : "–", moved ? "yes" : "no"];
    });
    const cells = (row, tag) => `<tr>${row.map((cell) => `<${tag}>${cell}</${tag.slice(0, 2)}>`).join("")}</tr>`;
    const head = ["client", "true group", "most frequent label", "group found", "took part", "changed group"];
    const body = rows.map((row) => cells(row, "td")).join(""), caption = says(run, t, method);
    return `<table class="table"><caption>${caption}</caption>${cells(head, 'th scope="col"')}${body}</table>`;
  }

  /* What shape and colour mean, for a federation. */
  function legend({ domains }) {
    const shapes = domains.map(({ says: words }, k) =>
      `<span><svg viewBox="-6 -6 12 12" aria-hidden="true"><g class="pg-shape">${SHAPES[k]}</g></svg> ${words}</span>`);
    return `True groups: ${shapes.join(" ")} <span>Colour and letter: the group that the method has found.</span>`;
  }

  return { tile, groups, look, charts, says, table, legend, ROUNDS };
})();
