/* The playground in a page: knobs, buttons, keys, the address, the messages of a round. */
"use strict";

playground.page = (() => {
  const { draw, methods, draws } = playground;
  const numbers = (...values) => Object.fromEntries(values.map((value) => [value, value]));
  /* What can be turned: a question, the answers, and the first of them. */
  const KNOBS = {
    images: ["How images differ", { rotated: "turned", shifted: "labels renamed", same: "not at all" }, "rotated"],
    labels: ["How uneven the labels", { even: "even", 1: "Dirichlet, α = 1", 0.3: "Dirichlet, α = 0.3", 0.1: "Dirichlet, α = 0.1" }, "even"],
    part: ["Who takes part in a round", { 1: "all 40 clients", 0.5: "20 of 40", 0.25: "10 of 40", 0.1: "4 of 40" }, "1"],
    method: ["Method", Object.fromEntries(Object.entries(methods).map(([name, { title }]) => [name, title])), "fesem"],
    tau: ["Threshold τ", numbers(0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8), "0.5"],
    mu: ["Pull to the group μ", numbers(0, 0.01, 0.1, 0.3, 1), "0.1"],
    lam: ["Pull to all λ", numbers(0, 0.05, 0.1, 0.3, 1), "0.05"],
    seed: ["Seed", numbers(0, 1, 2, 3, 4, 5, 6, 7, 8, 9), "0"],
  };
  const calm = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

  /* A situation from the words of an address, "method=ifca&seed=1&round=12"; what is not allowed there is left out. */
  function read(address) {
    const words = new URLSearchParams(address), situation = { round: 0 };
    for (const [name, [, answers, first]] of Object.entries(KNOBS))
      situation[name] = words.get(name) in answers ? words.get(name) : first;
    situation.round = Math.max(0, Math.min(draw.ROUNDS, Math.floor(Number(words.get("round"))) || 0));
    return situation;
  }

  /* The federation and the run of a situation. */
  function begin({ images, labels, part, method, seed, ...options }) {
    const digits = playground.federation.unpack(playground.digits);
    const federation = playground.federation.make(digits, images, labels === "even" ? null : Number(labels), seed);
    const network = playground.network(federation.pool), { BATCH, EPOCHS } = playground.run;
    const drawn = draws.ofRun(seed, network, federation.clients.length, Number(part), BATCH, EPOCHS);
    const pulls = Object.fromEntries(["tau", "mu", "lam"].map((name) => [name, Number(options[name])]));
    return { federation, run: playground.run.make(federation, method, pulls, drawn, network) };
  }

  function enliven(root) {
    const small = root.hasAttribute("data-small"), own = root.id;
    const knob = ([name, [question, answers]]) => `<label data-knob="${name}">${question} <select name="${name}">` +
      `${Object.entries(answers).map(([value, words]) => `<option value="${value}">${words}</option>`).join("")}</select></label>`;
    const button = (name, words) => `<button type="button" data-do="${name}">${words}</button>`;
    root.innerHTML = `${root.querySelector("p").outerHTML}<form class="pg-knobs">${Object.entries(KNOBS).map(knob).join("")}</form><div class="pg-buttons">` +
      `${button("back", "◀ Back")}${button("play", "")}${button("step", "Step ▶")}${button("reset", "Reset")}` +
      `${button("messages", "Messages of a round")}</div><p class="pg-says"></p><p class="cfl-live" aria-live="polite"></p>` +
      `<div class="pg-scene"><div class="pg-server"></div><p class="pg-phase" hidden></p><div class="pg-tiles"></div>` +
      `<svg class="pg-messages" aria-hidden="true"></svg></div><p class="pg-legend"></p><div class="pg-charts"></div>` +
      `<details class="cfl-table"><summary>This round as a table</summary><div tabindex="0" role="region" aria-label="Table of the round"></div></details>` +
      (small ? `<p class="pg-more"><a href="${root.dataset.page}">All knobs, and experiments</a></p>` : "");
    const find = (selector) => root.querySelector(selector), form = find("form"), known = new Map(); // curves of other methods
    let situation, federation, run, timer = 0, progress = null, waiting = 0;

    /* Set up a situation, and play silently up to its round. */
    function set(next) {
      stop();
      situation = next;
      ({ federation, run } = begin(situation));
      while (run.history.length <= situation.round) run.step();
      for (const field of form.elements) {
        field.value = situation[field.name];
        field.parentNode.hidden = ["tau", "mu", "lam"].includes(field.name) && !(methods[situation.method].knobs || []).includes(field.name);
      }
      find(".pg-tiles").innerHTML = federation.clients.map((_, i) => draw.tile(federation, i, small)).join("");
      find(".pg-legend").innerHTML = draw.legend(federation);
      paint();
    }

    const place = () => `${["images", "labels", "part", "seed"].map((name) => situation[name])}`;
    function paint() {
      const { round, method } = situation, entry = run.history[round], found = draw.groups(entry.server);
      [...find(".pg-tiles").children].forEach((tile, i) => {
        const { kind, letter } = draw.look(entry, run.history[round - 1], i, found);
        tile.setAttribute("class", kind);
        tile.lastChild.textContent = letter;
      });
      const chip = (words, kind) => `<b class="pg-chip pg-${kind}">${words}</b>`;
      find(".pg-server").innerHTML = `${chip(methods[method].down.includes("w") ? "Server, model of all" : "Server", "none")}` +
        found.map(({ letter, kind, size }) => chip(`${letter}<small> ${size}</small>`, kind)).join("");
      if (!known.has(place())) known.set(place(), new Map());
      const others = known.get(place());
      find(".pg-charts").innerHTML = draw.charts(run, method, round, [...others].filter(([name]) => name !== method));
      others.set(method, run.history.map(({ balanced }) => balanced));
      find(".pg-says").textContent = draw.says(run, round);
      find("[data-do=play]").textContent = timer ? "❚❚ Pause" : "▶ Play";
      for (const [name, off] of [["back", round === 0], ["step", round === draw.ROUNDS], ["play", round === draw.ROUNDS && !timer]])
        find(`[data-do=${name}]`).setAttribute("aria-disabled", off);
      if (find("details").open) find("details div").innerHTML = draw.table(federation, run, round);
      clearTimeout(waiting); // while rounds are played nothing is said
      if (!timer) waiting = setTimeout(() => { find(".cfl-live").textContent = draw.says(run, round); }, 400);
      if (!small) try { history.replaceState(null, "", `?${new URLSearchParams(situation)}`); } catch { /* a file's address stays */ }
    }

    function go(round) {
      situation.round = Math.max(0, Math.min(draw.ROUNDS, round));
      while (run.history.length <= situation.round) run.step();
      paint();
    }
    function stop() {
      clearInterval(timer);
      timer = 0;
      if (progress !== null) endMessages();
    }
    function play() {
      timer = setInterval(() => { if (situation.round < draw.ROUNDS) go(situation.round + 1); else { stop(); paint(); } }, calm() ? 600 : 120);
      go(situation.round + 1);
    }

    /* The messages of the next round: 0 to 1 down, to 2 at work, to 3 up; still pictures where motion is not wanted. */
    function messages() {
      const phase = Math.floor(progress), { method, round } = situation, entry = run.history[round + 1];
      if (phase > 2) { endMessages(); go(round + 1); return; }
      const { down, up, says } = methods[method], box = find(".pg-scene").getBoundingClientRect();
      const centre = (element) => {
        const { left, top, width, height } = element.getBoundingClientRect();
        return [left - box.left + width / 2, top - box.top + height / 2];
      };
      const all = [...root.querySelectorAll(".pg-chip")].slice(1), server = find(".pg-chip");
      const chips = (token, i, { assign }) => token === "all" ? (all.length ? all : [server])
        : token === "group" ? [all[assign[i]] || server] : [server];
      const part = progress - phase, ease = calm() ? 0.5 : part * part * (3 - 2 * part);
      const drawn = phase === 1 ? "" : entry.took.flatMap((i) => (phase ? up : down).flatMap((token) =>
        chips(token, i, run.history[phase ? round + 1 : round].server).map((chip) => {
          const [x, y] = centre(chip), [left, top] = centre(find(".pg-tiles").children[i]), at = phase ? 1 - ease : ease;
          const kind = chip.className.split(" ")[1];
          return calm() ? `<line class="${kind}" x1="${x}" y1="${y}" x2="${left}" y2="${top}"/>`
            : `<circle class="${kind}" r="4" cx="${x + at * (left - x)}" cy="${y + at * (top - y)}"/>`;
        }))).join("");
      find(".pg-messages").innerHTML = drawn;
      find(".pg-phase").textContent = `${["Down", "At the clients", "Up"][phase]}: ${says[phase]}`;
      find(".pg-tiles").classList.toggle("pg-working", phase === 1);
    }
    function endMessages() {
      progress = null;
      find(".pg-messages").innerHTML = "";
      find(".pg-phase").hidden = true;
      find(".pg-tiles").classList.remove("pg-working");
      find("[data-do=messages]").textContent = "Messages of a round";
    }
    function tick(before) {
      requestAnimationFrame((now) => {
        if (progress === null) return;
        if (!root.dataset.paused) progress += Math.min(0.05, (now - before) / 1600);
        messages();
        if (progress !== null) tick(now);
      });
    }
    const actions = {
      back: () => { stop(); go(situation.round - 1); },
      step: () => { stop(); go(situation.round + 1); },
      reset: () => { stop(); go(0); },
      play: () => { if (timer) { stop(); paint(); } else if (situation.round < draw.ROUNDS) { stop(); play(); } },
      messages() { // begin; then stop and go on, or, without motion, the next picture
        const label = find("[data-do=messages]");
        if (progress === null) {
          if (timer) stop();
          if (situation.round === draw.ROUNDS) return;
          if (run.history.length <= situation.round + 1) run.step();
          progress = 0;
          delete root.dataset.paused;
          find(".pg-phase").hidden = false;
          label.textContent = calm() ? "Go on" : "❚❚ Stop";
          paint();
          messages();
          if (!calm()) tick(performance.now());
        } else if (calm()) {
          progress++;
          messages();
        } else {
          root.toggleAttribute("data-paused");
          if (root.hasAttribute("data-paused")) root.dataset.paused = "yes";
          label.textContent = root.dataset.paused ? "▶ Go on" : "❚❚ Stop";
        }
      },
    };
    root.addEventListener("click", ({ target }) => { if (target.dataset.do) actions[target.dataset.do](); });
    form.addEventListener("change", () => set({ ...situation, ...Object.fromEntries(new FormData(form)) }));
    find("details").addEventListener("toggle", paint);
    root.addEventListener("keydown", (event) => {
      const move = { ArrowLeft: "back", ArrowRight: "step", Home: "reset" }[event.key];
      const inside = event.target.matches("select, summary, a, .cfl-table *"); // these know what to do with arrow keys
      if (!move || inside || event.altKey || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      actions[move]();
    });
    if (!small) document.addEventListener("click", (event) => { // an experiment of the page sets up its situation
      const link = event.target.closest("a.pg-try");
      if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      set(read(link.search));
      root.scrollIntoView({ behavior: calm() ? "auto" : "smooth" });
      find("[data-do=play]").focus({ preventScroll: true });
    });
    root.classList.add("live");
    set(read(small || !location.search.includes("=") ? root.dataset.situation : location.search));
  }

  return { read, begin, enliven, KNOBS };
})();
if (typeof document !== "undefined") document.querySelectorAll(".pg").forEach(playground.page.enliven);
