/* The explorer of runs. The page has a list of tables (book/_ext/explorer.py), which is all that there is without this
   script. Here the list becomes a choice, and the runs of the chosen table a chart and a table of numbers. */
"use strict";
const explorer = (() => {
  const root = document.querySelector(".ex"), find = (what) => root.querySelector(what), form = find("form");
  const runsAt = document.currentScript.dataset.runs, links = [...root.querySelectorAll(".ex-list a")];
  const named = (link) => link.hash.slice("#table-".length), loaded = new Map();
  const DASHES = ["", "7 4", "2 3", "8 3 2 3"], LINE = 17; // as in the figures (plots.DASHES); pixels between names
  let chosen = null, marked, telling; // places of the rows that are drawn; the one that stands out

  const mean = (values) => values.reduce((a, b) => a + b, 0) / values.length;
  const deviation = (values) => Math.sqrt(mean(values.map((v) => (v - mean(values)) ** 2)) * values.length / (values.length - 1));
  const safe = (words) => words.replace(/[&<>"]/g, (letter) => `&#${letter.charCodeAt(0)};`);
  const fixed = (value, digits, sign = "") => (value < 0 ? "−" : sign) + Math.abs(value).toFixed(digits);
  const ends = (row, key = "score") => row.runs.map((run) => run[key].at(-1));

  /* The mean over the seeds, in the rounds in which every seed was scored. */
  function middle({ runs }) {
    const rounds = runs[0].rounds.filter((round) => runs.every((run) => run.rounds.includes(round)));
    const at = (key, round) => mean(runs.map((run) => run[key][run.rounds.indexOf(round)]));
    return { rounds, traffic: rounds.map((r) => at("traffic", r)), score: rounds.map((r) => at("score", r)) };
  }

  /* Round numbers from `low` to `high`, about `count` of them. */
  function ticks(low, high, count) {
    const rough = (high - low) / count, power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough);
    const first = Math.ceil(low / step - 1e-9);
    return Array.from({ length: Math.floor(high / step + 1e-9) - first + 1 }, (_, i) => +((first + i) * step).toPrecision(12));
  }

  /* Places at least LINE apart, in the same order and as near to `wanted`, which ascends, as `least` and `most` allow. */
  function apart(wanted, least, most) {
    const places = [...wanted];
    places.forEach((_, i) => { places[i] = Math.max(places[i], i ? places[i - 1] + LINE : least); });
    for (let i = places.length - 1; i >= 0; i--) places[i] = Math.min(places[i], i < places.length - 1 ? places[i + 1] - LINE : most);
    return places;
  }

  function chart(table, rows, key, zoom) {
    const width = Math.max(320, Math.min(1100, find(".ex-chart").clientWidth || 720)), thin = width < 600;
    const left = 40, right = width - (thin ? 156 : 250), top = 30, bottom = Math.max(thin ? 330 : 400, top + LINE * rows.length);
    const lines = rows.map((row) => ({ row, curve: middle(row), last: mean(ends(row)) })).sort((a, b) => b.last - a.last);
    const far = Math.max(1, ...rows.flatMap(({ runs }) => runs.flatMap((run) => run[key])));
    let low = 0, high = 100;
    if (zoom) {
      const values = lines.flatMap(({ row, last }) => [last, ...ends(row), ...(row.printed === null ? [] : [row.printed])]);
      const edge = Math.max(0.5, 0.08 * (Math.max(...values) - Math.min(...values)));
      [low, high] = [Math.max(0, Math.min(...values) - edge), Math.min(100, Math.max(...values) + edge)];
    }
    const x = (value) => left + (right - left) * value / far, y = (value) => bottom - (bottom - top) * (value - low) / (high - low);
    const text = (kind, at, down, words) => `<text class="${kind}" x="${at.toFixed(1)}" y="${down.toFixed(1)}">${words}</text>`;
    const line = (kind, { [key]: at, score }, more = "") => // a single point would not be seen
      `<polyline class="${kind}" points="${score.map((v, i) => `${x(at[i]).toFixed(2)},${y(v).toFixed(2)}`).join(" ")}"${more}/>` +
      (score.length > 1 ? "" : `<circle class="${kind}" cx="${x(at[0])}" cy="${y(score[0])}" r="2.5"/>`);
    const many = key === "traffic" && far >= 1e4, places = apart(lines.map(({ last }) => y(last)), top, bottom + 12);
    const drawn = lines.map(({ row, curve, last }, i) => {
      const endX = x(curve[key].at(-1)), endY = y(last), dash = ` stroke-dasharray="${DASHES[row.dash % DASHES.length]}"`;
      const seeds = row.runs.length > 1 ? row.runs.map((run) => line("seed", run)).join("") : "";
      const gap = row.printed === null ? "" : `<path class="gap" d="M${endX} ${endY}V${y(row.printed)}"/>` +
        `<path class="printed" d="M${endX} ${y(row.printed) - 6}l6 6-6 6-6-6z"/>`;
      const most = thin ? 14 : 27, said = row.name.length > most ? `${row.name.slice(0, most - 1)}…` : row.name;
      return `<g class="ex-row" data-row="${table.rows.indexOf(row)}" style="--own:var(--cfl-${row.colour})"><g clip-path="url(#ex-clip)">` +
        `${seeds}${line("mean", curve, dash)}</g><circle class="end" cx="${endX}" cy="${endY}" r="3.5"/>${gap}` +
        `<path class="lead" d="M${endX + 5} ${endY}L${right + 14} ${places[i]}"/>` +
        `${text("name", right + 18, places[i] + 4, `${fixed(last, 1)} ${safe(said)}`)}</g>`;
    }).join("");
    const told = lines.map(({ row, last }) => `${row.name} ${fixed(last, 1)}` + (row.printed === null ? "" : `, printed ${row.printed}`));
    const across = key === "rounds" ? "rounds" : `${many ? "gigabytes" : "megabytes"} sent, down and up`;
    const words = `${table.score} in percent over ${across}, mean at the end. ${told.join("; ")}.`;
    return { words, svg: `<svg class="ex-plot${thin ? " ex-thin" : ""}" viewBox="0 0 ${width} ${bottom + 48}" role="img" aria-label="${safe(words)}">` +
      `<clipPath id="ex-clip"><rect x="${left}" y="${top - 8}" width="${right - left + 8}" height="${bottom - top + 8}"/></clipPath>` +
      ticks(low, high, 5).map((v) => `<path class="grid" d="M${left} ${y(v).toFixed(1)}H${right}"/>${text("down", left - 6, y(v) + 4, v)}`).join("") +
      ticks(0, far, thin ? 3 : 6).map((v) => text("across", x(v), bottom + 20, (many ? v / 1000 : v).toLocaleString("en"))).join("") +
      `${text("title", 0, 13, `${table.score} [%]${zoom ? ", not from 0" : ""}`)}${text("across", (left + right) / 2, bottom + 42, across)}${drawn}</svg>` };
  }

  /* All rows as a table, the best first; its boxes say which are drawn. */
  function numbers({ rows, score }) {
    const beside = rows.some((row) => row.printed !== null), groups = rows.some((row) => row.ari.length);
    const head = ["row", `${score.toLowerCase()} [%]`, "seeds", ...(beside ? ["printed", "difference"] : []), ...(groups ? ["Rand index"] : []), "sent [MB]"];
    const body = [...rows.keys()].sort((a, b) => mean(ends(rows[b])) - mean(ends(rows[a]))).map((at) => {
      const row = rows[at], last = ends(row), own = mean(last), sent = Math.round(mean(ends(row, "traffic")));
      const cells = [`<i style="width:${own.toFixed(1)}%"></i>${fixed(own, 2)}${last.length > 1 ? ` ± ${fixed(deviation(last), 2)}` : ""}`, last.length,
        ...(!beside ? [] : row.printed === null ? ["–", "–"] : [fixed(row.printed, 2), row.diverged ? "diverged" : fixed(own - row.printed, 2, "+")]),
        ...(!groups ? [] : [row.ari.length ? fixed(mean(row.ari), 2) : "–"]), sent.toLocaleString("en")];
      return `<tr style="--own:var(--cfl-${row.colour})" data-row="${at}"><th scope="row"><label><input type="checkbox" value="${at}">` +
        `<svg viewBox="0 0 24 8" aria-hidden="true"><path class="mean" d="M0 4H24" stroke-dasharray="${DASHES[row.dash % DASHES.length]}"/></svg>` +
        `${safe(row.name)}</label></th>${cells.map((cell) => `<td>${cell}</td>`).join("")}</tr>`;
    });
    return `<table class="table"><thead><tr>${head.map((words) => `<th scope="col">${words}</th>`).join("")}</tr></thead><tbody>${body.join("")}</tbody></table>`;
  }

  /* The state is the address's: table=NAME&across=traffic&scale=zoom&rows=NAME|NAME; what is left out is as at first. */
  function write() {
    const { table, across, scale } = form.elements, { rows, first } = loaded.get(table.value), state = new URLSearchParams({ table: table.value });
    if (across.value !== "rounds") state.set("across", across.value);
    if (scale.value !== "whole") state.set("scale", scale.value);
    if (String([...chosen]) !== String(first)) state.set("rows", [...chosen].map((at) => rows[at].name).join("|"));
    history.replaceState(null, "", `#${state}`);
  }

  function read() {
    const state = new URLSearchParams(location.hash.slice(1));
    form.reset();
    for (const { name, options } of form.querySelectorAll("select"))
      if ([...options].some(({ value }) => value === state.get(name))) form.elements[name].value = state.get(name);
    turn(state.has("rows") ? state.get("rows").split("|") : null);
  }

  /* Show the table of the form, with these rows (null: the first ones), once its runs are here. */
  function turn(names) {
    const name = form.elements.table.value, table = loaded.get(name);
    if (!table) {
      const script = document.createElement("script");
      script.src = `${runsAt}/${name}.js`;
      script.onload = () => { if (form.elements.table.value === name) turn(names); };
      script.onerror = () => { find(".ex-chart").textContent = `${script.src} could not be loaded.`; };
      document.head.append(script);
      return;
    }
    const wanted = names ? [...table.rows.keys()].filter((at) => names.includes(table.rows[at].name)) : table.first;
    chosen = new Set(wanted.length ? wanted : table.first);
    find(".ex-rows").innerHTML = numbers(table);
    find(".ex-link").innerHTML = `<a href="${links.find((link) => named(link) === name).href}">This table with its settings and records</a>`;
    draw(names === null);
  }

  function draw(changed = true) {
    const { table: { value }, across, scale } = form.elements, table = loaded.get(value);
    if (!table) return; // its runs are on their way
    const { svg, words } = chart(table, [...chosen].map((at) => table.rows[at]), across.value, scale.value === "zoom");
    find(".ex-chart").innerHTML = svg;
    for (const box of root.querySelectorAll(".ex-rows input")) box.checked = chosen.has(Number(box.value));
    find(".ex-rows").hidden = false;
    clearTimeout(telling);
    telling = setTimeout(() => { find(".cfl-live").textContent = words; }, 400);
    mark(marked);
    if (changed) write();
  }

  /* Let one row stand out, if it is drawn. */
  function mark(at) {
    marked = at;
    for (const row of root.querySelectorAll(".ex-row")) row.classList.toggle("ex-dim", chosen.has(at) && placeOf(row) !== at);
  }

  const placeOf = (element) => Number(element.closest("[data-row]")?.dataset.row ?? NaN);
  form.addEventListener("change", ({ target }) => (target.name === "table" ? turn(null) : draw()));
  form.addEventListener("click", ({ target: { name } }) => {
    const { rows, first } = loaded.get(form.elements.table.value) || {};
    if (rows && (name === "main" || name === "all")) { chosen = new Set(name === "all" ? rows.keys() : first); draw(); }
  });
  find(".ex-rows").addEventListener("change", ({ target }) => {
    const at = Number(target.value);
    if (!target.checked && chosen.size > 1) chosen.delete(at); // one row stays
    else chosen.add(at);
    chosen = new Set([...chosen].sort((a, b) => a - b));
    draw();
  });
  for (const when of ["mouseover", "focusin"]) document.addEventListener(when, ({ target }) => { if (chosen) mark(placeOf(target)); });
  addEventListener("hashchange", read);
  addEventListener("resize", () => { if (chosen) draw(false); });

  const paperOf = (link) => link.closest("ul").parentNode.firstElementChild.textContent;
  form.elements.table.append(...links.map((link) => new Option(`${paperOf(link)} · ${link.textContent}`, named(link))));
  read();
  return { take: (table) => loaded.set(table.name, table) };
})();
