/* The playground in a page, whose markup is book/_ext/playground.py's: knobs, buttons, keys, the address, messages. */
"use strict";

playground.page = (root) => {
  root.querySelector(".pg-still").remove();
  const { draw } = playground, { ROUNDS } = draw, small = root.hasAttribute("data-small");
  const find = (name) => root.querySelector(name), form = find("form"), tiles = find(".pg-tiles");
  const methods = JSON.parse(root.dataset.methods), known = new Map(); // curves of each method, by federation
  const calm = () => matchMedia("(prefers-reduced-motion: reduce)").matches;
  const within = (round) => Math.max(0, Math.min(ROUNDS, Math.floor(round) || 0));
  let now, federation, run, timer = null, sent = null, telling; // sent: how far the messages of the next round are

  /* Set up a situation, "method=ifca&seed=1&round=12", and play silently up to its round; what no knob has is left out. */
  function set(address) {
    stop();
    form.reset();
    const words = new URLSearchParams(address);
    for (const field of form.elements)
      if ([...field.options].some(({ value }) => value === words.get(field.name))) field.value = words.get(field.name);
    now = { ...Object.fromEntries(new FormData(form)), round: within(words.get("round")) };
    for (const name of Object.values(methods).flatMap(({ knobs }) => knobs))
      form.elements[name].parentNode.hidden = !methods[now.method].knobs.includes(name);
    ({ federation, run } = playground.run.begin(now));
    tiles.innerHTML = federation.clients.map((_, i) => draw.tile(federation, i, small)).join("");
    find(".pg-legend").innerHTML = draw.legend(federation);
    go(now.round);
  }

  function go(round) {
    now.round = within(round);
    while (run.history.length <= now.round) run.step();
    const { method } = now, entry = run.history[now.round], before = run.history[now.round - 1], found = draw.groups(entry.server);
    [...tiles.children].forEach((tile, i) => {
      const { kind, letter } = draw.look(entry, before, i, found);
      tile.setAttribute("class", kind);
      tile.lastChild.textContent = letter;
    });
    const chip = (words, kind) => `<b class="pg-chip pg-${kind}">${words}</b>`;
    find(".pg-server").innerHTML = chip(methods[method].down.includes("w") ? "Server, model of all" : "Server", "none") +
      found.map(({ letter, kind, size }) => chip(`${letter}<small> ${size}</small>`, kind)).join("");
    const place = `${[now.images, now.labels, now.part, now.seed]}`, curves = known.get(place) || new Map();
    known.set(place, curves.set(method,
      { values: run.history.map(({ balanced }) => balanced), name: methods[method].short, kind: `pg-${method}`, faint: true }));
    find(".pg-charts").innerHTML = draw.charts(run, method, now.round, [...curves].flatMap(([name, one]) => name === method ? [] : one));
    const title = form.elements.method.selectedOptions[0].text, words = draw.says(run, now.round, title);
    find(".pg-says").textContent = words;
    if (find("details").open) find("details div").innerHTML = draw.table(federation, run, now.round, title);
    const off = { back: now.round === 0, step: now.round === ROUNDS, play: now.round === ROUNDS, messages: now.round === ROUNDS };
    for (const button of root.querySelectorAll("button")) button.setAttribute("aria-disabled", off[button.name] || false);
    clearTimeout(telling); // while rounds are played nothing is said
    if (!timer) telling = setTimeout(() => { find(".cfl-live").textContent = words; }, 400);
    if (!small) try { history.replaceState(null, "", `?${new URLSearchParams(now)}`); } catch { /* it stays as it was */ }
  }

  function stop() {
    clearInterval(timer);
    timer = sent = null;
    find("[name=play]").textContent = "▶ Play";
    find("[name=messages]").textContent = "Messages of a round";
    find(".pg-messages").innerHTML = find(".pg-phase").textContent = "";
  }

  /* Draw the messages of the next round: from 0 to 1 they go down, to 2 clients work, to 3 messages go up. */
  function drawMessages() {
    const phase = Math.floor(sent.at), { down, up, says } = methods[now.method], { left, top } = find(".pg-scene").getBoundingClientRect();
    if (phase > 2) { stop(); go(now.round + 1); return; }
    const centre = (element) => {
      const box = element.getBoundingClientRect();
      return [box.left - left + box.width / 2, box.top - top + box.height / 2];
    };
    const [server, ...groups] = root.querySelectorAll(".pg-chip"), { assign } = run.history[now.round + phase / 2 | 0].server;
    const chips = { all: () => groups, group: (i) => [groups[assign[i]] || server], w: () => [server], own: () => [server] };
    const way = calm() ? 1 : (1 - Math.cos(Math.PI * (sent.at - phase))) / 2, tokens = [down, [], up][phase];
    find(".pg-messages").innerHTML = run.history[now.round + 1].took.flatMap((i) => tokens.flatMap((token) => chips[token](i).map((chip) => {
      const [x, y] = centre(chip), [toX, toY] = centre(tiles.children[i]), at = phase ? 1 - way : way, kind = chip.classList[1];
      return calm() ? `<line class="${kind}" x1="${x}" y1="${y}" x2="${toX}" y2="${toY}"/>`
        : `<circle class="${kind}" r="4" cx="${x + at * (toX - x)}" cy="${y + at * (toY - y)}"/>`;
    }))).join("");
    find(".pg-phase").textContent = `${["Down", "At the clients", "Up"][phase]}: ${says[phase]}`;
  }
  function move(before) {
    const own = sent;
    requestAnimationFrame((time) => {
      if (!own || sent !== own || own.held) return;
      sent.at += Math.max(0, Math.min(0.05, (time - before) / 1600));
      drawMessages();
      move(time);
    });
  }

  const actions = {
    back() { stop(); go(now.round - 1); },
    step() { stop(); go(now.round + 1); },
    reset() { stop(); go(0); },
    play() {
      const playing = timer;
      stop();
      if (playing) { go(now.round); return; }
      timer = setInterval(() => { if (now.round === ROUNDS) stop(); go(now.round + 1); }, calm() ? 600 : 120);
      find("[name=play]").textContent = "❚❚ Pause";
    },
    messages() { // begin, then hold and go on; where motion is not wanted, the next of three pictures
      if (!sent) {
        stop();
        while (run.history.length <= now.round + 1) run.step();
        sent = { at: 0, held: true };
      } else if (calm()) sent.at++;
      if (!calm()) sent.held = !sent.held;
      find("[name=messages]").textContent = sent.held ? "▶ Go on" : "❚❚ Stop";
      drawMessages(); move(performance.now());
    },
  };
  root.addEventListener("click", ({ target: { name, ariaDisabled } }) => { if (name in actions && ariaDisabled !== "true") actions[name](); });
  form.addEventListener("change", () => set([...new FormData(form), ["round", now.round]]));
  find("details").addEventListener("toggle", () => go(now.round));
  root.addEventListener("keydown", (event) => {
    const name = { ArrowLeft: "back", ArrowRight: "step", Home: "reset" }[event.key];
    const own = event.target.matches("select, summary, a, .cfl-table *"); // these know what to do with such keys
    if (!name || own || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault(); actions[name]();
  });
  if (!small) document.addEventListener("click", (event) => { // an experiment of the page sets up its situation
    const link = event.target.closest("a.pg-try");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault(); set(link.search);
    root.scrollIntoView({ behavior: calm() ? "auto" : "smooth" });
    find("[name=play]").focus({ preventScroll: true });
  });
  root.classList.add("live");
  set(small || !location.search.includes("=") ? root.dataset.situation : location.search);
};
if (typeof document !== "undefined") document.querySelectorAll(".pg").forEach(playground.page);
