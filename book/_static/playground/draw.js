/* What is seen of a round, as strings of HTML and SVG, each by the place it has in the page (book/_ext/html/
   playground.html). No page is needed, so that Node can draw the rounds for pages without JavaScript. */
playground.draw = (() => {
  const ROUNDS = 40, SHAPES = "●■▲◆", { SIDE } = playground.federation; // a shape for each true group
  const percent = (value) => `${Math.round(100 * value)}%`, tenths = (value) => value.toFixed(1);
  const two = (value) => (Math.round(100 * value) / 100 || 0).toFixed(2).replace("-", "−"); // no −0.00
  const row = (cells) => `<tr><td>${cells.join("</td><td>")}</td></tr>`;
  const chip = (words, kind) => `<b class="pg-chip ${kind}">${words}</b>`;

  /* Size, letter and colour of each group; if there are more than four, the smaller ones are grey. */
  function groups({ assign, centres = [] }) {
    const sizes = centres.map((_, k) => assign.filter((own) => own === k).length);
    const large = [...sizes.keys()].sort((a, b) => sizes[b] - sizes[a]).slice(0, 4).sort((a, b) => a - b);
    const kind = (k) => `pg-${"abcd"[large.indexOf(k)] ?? "none"}`;
    return sizes.map((size, k) => ({ size, letter: String.fromCharCode(65 + k % 26), kind: kind(k) }));
  }

  /* A digit in cells of length 1: those with ink, and over them the dark ones. */
  const digit = (x) => [0.25, 0.65].map((least) => {
    const cells = [...x.keys()].filter((at) => x[at] >= least);
    return `<path d="${cells.map((at) => `M${at % SIDE} ${Math.floor(at / SIDE)}h1`).join("")}"/>`;
  }).join("");

  /* A client: its group as a letter, its true group as a shape, and `count` digits, spread over its label mix. */
  function tile({ data, truth }, { letter, kind, idle, moved }, count) {
    const height = 18 + 27 * count / 2, digits = Array.from({ length: count }, (_, j) => {
      const { x } = data[Math.floor((j + 0.5) * data.length / count)], top = 21 + 27 * Math.floor(j / 2);
      return `<g transform="translate(${7 + 28 * (j % 2)} ${top}) scale(3)">${digit(x)}</g>`;
    });
    return `<svg class="pg-tile ${kind}${idle ? " pg-idle" : ""}${moved ? " pg-moved" : ""}" viewBox="0 0 66 ` +
      `${height + 2}"><rect x="1" y="1" width="64" height="${height}" rx="5"/>${digits.join("")}` +
      `<text x="7" y="15">${letter}</text><text x="59" y="15" class="pg-shape">${SHAPES[truth]}</text></svg>`;
  }

  /* Lines over rounds, {values, name, kind}; the axis ends at `low`. Names at their ends keep a line's distance. */
  function lines(series, low) {
    const at = (value, t) => [36 + 226 * t / ROUNDS, 162 - 136 * (value - low) / (1 - low)];
    const shown = series.map(({ values, ...one }) => ({ ...one, points: values.map(at).filter(([, y]) => y) }))
      .filter(({ points }) => points.length).sort((a, b) => a.points.at(-1)[1] - b.points.at(-1)[1]);
    let above = 0;
    return shown.map(({ name, kind, points }) => {
      const [x, y] = points.at(-1);
      above = Math.max(y + 4, above + 13);
      return `<polyline class="line ${kind}" points="${points.map((at) => at.map(tenths)).join(" ")}"/>` +
        `<text class="name ${kind}" x="${tenths(x + 5)}" y="${tenths(above)}">${name}</text>`;
    }).join("");
  }

  /* A round in words. */
  function says({ took, balanced, own, groups: found }, t, title) {
    const count = (n, what) => `${n} ${what}${n === 1 ? "" : "s"}`;
    const words = `${title}, round ${t} of ${ROUNDS}: ${t ? count(took.length, "client") : "nobody"} took part. ` +
      `Accuracy ${percent(balanced)} on all labels, ${percent(own)} on each client's own.`;
    if (!found?.count) return words;
    return `${words} ${count(found.count, "group")}, ${count(found.moved.length, "client")} changed. ` +
      `Agreement with the true groups ${two(found.ari)}, with the most frequent labels ${two(found.byLabel)}.`;
  }

  /* Round t of a run, by place. `method` has a name, a title and what goes down (playground.json), `others` are
     lines of other methods' accuracies on the same federation, and a tile shows so many `digits`. */
  function scene({ federation: { clients, domains }, history }, t, method, others, digits) {
    const entry = history[t], { server, took, groups: now } = entry, found = groups(server);
    const looks = clients.map((_, i) => ({
      letter: "", kind: "pg-none", ...found[server.assign?.[i]],
      idle: t > 0 && !took.includes(i), moved: now?.moved.includes(i),
    }));
    const line = (name, of, dashed = "") =>
      ({ name, values: history.slice(0, t + 1).map(of), kind: `pg-${method.name}${dashed}` });
    return {
      says: says(entry, t, method.title),
      server: chip(method.down.includes("w") ? "Server, model of all" : "Server", "pg-none") +
        found.map(({ letter, size, kind }) => chip(`${letter}<small> ${size}</small>`, kind)).join(""),
      tiles: clients.map((client, i) => tile(client, looks[i], digits)).join(""),
      legend: domains.map(({ says: words }, k) => `<span>${SHAPES[k]} ${words}</span>`).join(" "),
      accuracy: lines([...others, line("all labels", (one) => one.balanced),
        line("own labels", (one) => one.own, " dashed")], 0),
      agreement: now ? lines([line("true groups", (one) => one.groups.ari),
        line("main labels", (one) => one.groups.byLabel, " dashed")], -0.5) : "",
      rows: clients.map(({ truth, label }, i) => row([i + 1, domains[truth].says, label, looks[i].letter || "–",
        took.includes(i) ? "yes" : "no", looks[i].moved ? "yes" : "no"])).join(""),
    };
  }
  return { scene, ROUNDS };
})();
