/* A method over a federation, round by round (cflkit/engine/simulation.py), and what is measured
   (cflkit/engine/metrics.py). */
playground.run = (() => {
  const LR = 0.5, BATCH = 5; // one epoch a round
  const { network, vectors } = playground, average = (values) => vectors.total(values) / values.length;

  /* Adjusted Rand index of groups and true groups, over the clients whose group is known: how many of their pairs
     are together in both, so that 1 is for equal groups and 0 for what chance gives. NaN if there is no pair. */
  function ari(assign, truth) {
    const known = [...assign.keys()].filter((i) => assign[i] >= 0), together = ([i, j]) => truth[i] === truth[j];
    const pairs = known.flatMap((i) => known.filter((j) => j < i).map((j) => [i, j]));
    const found = pairs.filter(([i, j]) => assign[i] === assign[j]), all = pairs.filter(together).length;
    const most = (found.length + all) / 2, chance = found.length * all / pairs.length;
    return most === chance ? 1 : (found.filter(together).length - chance) / (most - chance);
  }

  /* Accuracy of each client's model on its true group's test images: all labels alike, and in its own label mix. */
  function scores(models, { clients, tests }) {
    const recalls = clients.map(({ truth }, i) => network.recalls(models[i], tests[truth]));
    const own = clients.map(({ data }, i) => average(data.map(({ y }) => recalls[i][y])));
    return { balanced: average(recalls.map(average)), own: average(own) }; // labels have equally many test images
  }

  /* A run that goes on and back: `history` has the server's state and the numbers of every round from 0 on, and
     `upTo(t)` plays as far as round t and returns its entry. */
  function make(federation, name, options, draws) {
    const method = playground.methods[name], { clients, domains } = federation, history = [];
    const net = {
      clients, domains, options, draws, init: draws.init,
      sgd(i, start, pulls) {
        const { data } = clients[i], batches = draws.batches(history.length, i, data.length);
        return network.sgd(start, batches.map((batch) => batch.map((j) => data[j])), LR, pulls);
      },
      loss: (i, model) => network.loss(model, clients[i].data),
      gradient: (i, model) => network.gradient(model, clients[i].data),
    };
    function upTo(t) {
      for (let at = history.length; at <= t; at++) {
        const before = history.at(-1)?.server, took = at ? draws.sample(at) : [];
        const server = at ? method.round(before, took, net) : method.start(net), { assign } = server;
        const models = method.models(server, net), groups = assign && {
          count: new Set(assign.filter((k) => k >= 0)).size,
          moved: [...assign.keys()].filter((i) => before?.assign[i] >= 0 && before.assign[i] !== assign[i]),
          ari: ari(assign, clients.map(({ truth }) => truth)),
          byLabel: ari(assign, clients.map(({ label }) => label)),
        };
        history.push({ server, took, models, ...scores(models, federation), groups });
      }
      return history[t];
    }
    return { federation, history, upTo };
  }

  /* The run of a situation, which has a value, as a text, for each knob. */
  function begin({ images, labels, part, method, seed, ...knobs }) {
    const { unpack, make: deal } = playground.federation;
    const federation = deal(unpack(playground.digits), images, labels === "even" ? null : Number(labels), seed);
    const draws = playground.draws.ofRun(seed, federation.clients.length, Number(part), BATCH);
    const options = Object.fromEntries(Object.entries(knobs).map(([name, value]) => [name, Number(value)]));
    return make(federation, method, options, draws);
  }
  return { make, begin };
})();
