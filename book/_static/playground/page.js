/* The playground in a page (its markup is book/_ext/html/playground.html): knobs, buttons, keys, the address, and
   the messages of a round. */
document.querySelectorAll(".pg").forEach((root) => {
  const { ROUNDS, scene } = playground.draw, find = (name) => root.querySelector(name), form = find("form");
  const small = "small" in root.dataset, methods = JSON.parse(root.dataset.methods);
  const tried = {}; // accuracies of the methods that were tried, by federation
  const calm = () => matchMedia("(prefers-reduced-motion: reduce)").matches;
  let now, run, playing, telling, phase = null; // phase: how far the messages are, 0 down, 1 at the clients, 2 up

  /* Set up a situation, "method=ifca&seed=1&round=12", as it is after its round; what no knob has is left out. */
  function set(address) {
    const words = new URLSearchParams(address);
    stop();
    form.reset();
    for (const { name, options } of form.elements)
      for (const option of options) if (option.value === words.get(name)) option.selected = true;
    now = Object.fromEntries(new FormData(form));
    for (const name of Object.values(methods).flatMap(({ knobs }) => knobs))
      form.elements[name].parentNode.hidden = !methods[now.method].knobs.includes(name);
    run = playground.run.begin(now);
    go(words.get("round"));
  }

  function go(round) {
    now.round = Math.max(0, Math.min(ROUNDS, Math.floor(round) || 0));
    run.upTo(now.round);
    const { selectedOptions: [{ text: title }] } = form.elements.method, name = now.method;
    const method = { ...methods[name], name, title };
    const lines = tried[[now.images, now.labels, now.part, now.seed]] ??= {}, { [name]: _, ...others } = lines;
    const seen = scene(run, now.round, method, Object.values(others), small ? 2 : 4);
    for (const [place, html] of Object.entries(seen)) find(`.pg-${place}`).innerHTML = html;
    const values = run.history.map(({ balanced }) => balanced);
    lines[name] = { name: method.short, kind: `pg-${name} faint`, values };
    clearTimeout(telling); // while rounds are played nothing is said
    if (!playing) telling = setTimeout(() => { find(".cfl-live").textContent = seen.says; }, 400);
    if (!small) try { history.replaceState(null, "", `?${new URLSearchParams(now)}`); } catch { /* it stays */ }
  }

  function stop() {
    clearInterval(playing);
    playing = phase = null;
    find("[name=play]").textContent = "▶ Play";
    find("[name=messages]").textContent = "Messages of a round";
    find(".pg-messages").innerHTML = find(".pg-phase").innerHTML = "";
    find(".pg-scene").classList.remove("held");
  }

  /* Draw a phase of the next round's messages: lines, each of which playground.css turns into a dot that runs. */
  function send(next) {
    stop();
    if (next > 2 || now.round === ROUNDS) { go(now.round + 1); return; }
    phase = next;
    const { down, up, says } = methods[now.method], [server, ...groups] = root.querySelectorAll(".pg-chip");
    const { took, server: { assign } } = run.upTo(now.round + 1), known = run.history[now.round].server.assign;
    const group = (i) => groups[(phase ? assign : known)?.[i]] ?? server;
    const chips = (i) => ({ all: groups, group: [group(i)], w: [server], own: [server] });
    const origin = find(".pg-messages").getBoundingClientRect();
    const centre = (element) => {
      const { left, top, width, height } = element.getBoundingClientRect();
      return [left - origin.left + width / 2, top - origin.top + height / 2];
    };
    const line = (chip, client) => {
      const ends = [centre(chip), centre(client)], [from, to] = phase ? ends.reverse() : ends;
      return `<path class="${chip.classList[1]}" pathLength="1" d="M${from}L${to}"/>`;
    };
    find(".pg-messages").innerHTML = took.flatMap((i) => [down, [], up][phase].flatMap((what) =>
      chips(i)[what].map((chip) => line(chip, find(".pg-tiles").children[i])))).join("");
    find(".pg-phase").innerHTML = `<span>${["Down", "At the clients", "Up"][phase]}: ${says[phase]}</span>`;
    find("[name=messages]").textContent = calm() ? "▶ Go on" : "❚❚ Stop";
  }

  const actions = {
    back() { stop(); go(now.round - 1); },
    step() { stop(); go(now.round + 1); },
    reset() { stop(); go(0); },
    play() {
      const stopped = playing;
      stop();
      if (stopped) { go(now.round); return; }
      playing = setInterval(() => { if (now.round === ROUNDS) stop(); go(now.round + 1); }, calm() ? 600 : 120);
      find("[name=play]").textContent = "❚❚ Pause";
    },
    messages() { // begin, then hold and go on; where motion is not wanted, the next of three pictures
      if (phase === null) send(0);
      else if (calm()) send(phase + 1);
      else find("[name=messages]").textContent = find(".pg-scene").classList.toggle("held") ? "▶ Go on" : "❚❚ Stop";
    },
  };
  root.addEventListener("click", ({ target: { name } }) => actions[name]?.());
  root.addEventListener("keydown", (event) => {
    const name = { ArrowLeft: "back", ArrowRight: "step", Home: "reset" }[event.key];
    const own = event.target.matches("select, summary, a, .cfl-table *"); // these know what to do with such keys
    if (!name || own || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    actions[name]();
  });
  find(".pg-phase").addEventListener("animationend", () => send(phase + 1));
  form.addEventListener("change", () => set([...new FormData(form), ["round", now.round]]));
  set(small || !location.search.includes("=") ? root.dataset.situation : location.search);
});
