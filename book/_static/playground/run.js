/* A method over a federation, round by round (cflkit/engine/simulation.py), and what is measured
   (cflkit/engine/metrics.py). */
"use strict";

playground.run = (() => {
  const LR = 0.5, BATCH = 5; // one epoch a round
  const average = (values) => values.reduce((a, b) => a + b, 0) / values.length;

  /* Adjusted Rand index of groups and true groups, over the clients whose group is known. */
  function ari(assign, truth) {
    const known = assign.map((_, i) => i).filter((i) => assign[i] >= 0), pairs = (n) => n * (n - 1) / 2;
    const within = (name) => {
      const sizes = new Map();
      for (const i of known) sizes.set(name(i), (sizes.get(name(i)) || 0) + 1);
      return [...sizes.values()].reduce((total, n) => total + pairs(n), 0);
    };
    const both = within((i) => `${assign[i]} ${truth[i]}`), a = within((i) => assign[i]), b = within((i) => truth[i]);
    const expected = a * b / pairs(known.length), most = (a + b) / 2;
    return known.length < 2 ? NaN : most === expected ? 1 : (both - expected) / (most - expected);
  }

  /* Accuracy of each client's model on its true group's test images: every label alike, and under its own label mix. */
  function scores(models, { clients, tests }, network) {
    const once = new Map(); // clients share models
    const recalls = clients.map(({ truth }, i) => {
      const known = once.get(models[i]) || [];
      once.set(models[i], known);
      return (known[truth] ??= network.recalls(models[i], tests[truth]));
    });
    const own = clients.map(({ y }, i) => average(Array.from(y, (label) => recalls[i][label])));
    return { balanced: average(recalls.map(average)), own: average(own) }; // labels have equally many test images
  }

  /* A run that goes on and back: `history` has the server's state and the numbers of every round from 0 on. */
  function make(federation, name, options, draws, network = playground.network(federation.pool)) {
    const method = playground.methods[name], { clients, domains } = federation, losses = new WeakMap();
    const everything = clients.map(({ y }) => [...y.keys()]), truth = clients.map((client) => client.truth);
    const net = {
      clients, domains, options, draws, t: 0, init: draws.init,
      sgd: (i, start, pulls) => network.sgd(start, clients[i], draws.batches(net.t, i, clients[i].y.length), LR, pulls),
      gradient: (i, model) => network.gradient(model, clients[i], everything[i]),
      loss(i, model) { // of a model that has not changed since, it is known
        if (!losses.has(model)) losses.set(model, []);
        return (losses.get(model)[i] ??= network.meanLoss(model, clients[i]));
      },
    };
    function entry(server, took, before) {
      const { assign } = server, old = before && before.assign, models = method.models(server, net);
      return {
        server, took, models, ...scores(models, federation, network),
        moved: assign && old ? assign.filter((k, i) => old[i] >= 0 && k !== old[i]).length : 0,
        groups: assign ? new Set(assign.filter((k) => k >= 0)).size : 0,
        ari: assign ? ari(assign, truth) : NaN, byLabel: assign ? ari(assign, clients.map((client) => client.label)) : NaN,
      };
    }
    const history = [entry(method.start(net), [], null)];
    function step() { // play the next round
      const before = history[history.length - 1].server, t = net.t = history.length, took = draws.sample(t);
      history.push(entry(method.round(before, took, net), took, before));
    }
    return { history, step };
  }

  /* The federation and the run of a situation, which has a value, as a text, for each knob. */
  function begin({ images, labels, part, method, seed, ...knobs }) {
    const digits = playground.federation.unpack(playground.digits);
    const federation = playground.federation.make(digits, images, labels === "even" ? null : Number(labels), seed);
    const network = playground.network(federation.pool);
    const options = Object.fromEntries(Object.entries(knobs).map(([name, value]) => [name, Number(value)]));
    const draws = playground.draws.ofRun(seed, network, federation.clients.length, Number(part), BATCH);
    return { federation, run: make(federation, method, options, draws, network) };
  }

  return { make, begin };
})();
