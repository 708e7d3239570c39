/* The methods, as in cflkit/methods: a server's state goes in, a new one comes out, and nothing else is kept.

   A method has `start(net)`, `round(server, clients, net)` and `models(server, net)`, the model of every client that
   is scored. A state may have `assign`, the group of every client, -1 where it is not known yet. `net` (run.js) has
   what clients can do. All clients hold equally many images here, so a mean over clients needs no weights n_i. */
"use strict";

playground.methods = (() => {
  const K = 4, TIE = 1e-12, V = playground.vectors; // groups; cosines closer than this are equal, and move nobody
  const everybody = (net) => net.clients.map((_, i) => i);
  const at = (values, positions) => positions.map((i) => values[i]);
  /* A copy of `values` that has `news` at `positions`. */
  const put = (values, positions, news) =>
    values.map((value, i) => (positions.includes(i) ? news[positions.indexOf(i)] : value));

  /* McMahan et al. 2017, Algorithm 1: w <- mean_i of w_i. */
  const fedavg = {
    start: (net) => ({ model: net.init(0) }),
    round: (server, clients, net) => ({ model: V.mean(clients.map((i) => net.sgd(i, server.model))) }),
    models: (server, net) => net.clients.map(() => server.model),
  };

  const local = {
    start: (net) => ({ own: net.clients.map(() => net.init(0)) }),
    round: (server, clients, net) => ({ own: put(server.own, clients, clients.map((i) => net.sgd(i, server.own[i]))) }),
    models: (server) => server.own,
  };

  /* FedAvg within each true group. */
  const oracle = {
    start: (net) => ({ centres: net.domains.map(() => net.init(0)), assign: net.clients.map((client) => client.truth) }),
    round: ({ centres, assign }, clients, net) => ({
      assign, centres: V.meanBy(clients.map((i) => net.sgd(i, centres[assign[i]])), at(assign, clients), centres),
    }),
    models: (server) => at(server.centres, server.assign),
  };

  /* Ghosh et al. 2020, Algorithm 1, Option II: j = argmin_k F_i(theta_k), ties to the lowest; theta_j is trained. */
  const choose = (i, models, net) => V.argmin(models.map((model) => net.loss(i, model)));
  const ifca = {
    start: (net) => ({ centres: Array.from({ length: K }, (_, k) => net.init(k)), assign: net.clients.map(() => -1) }),
    round({ centres, assign }, clients, net) {
      const chosen = clients.map((i) => choose(i, centres, net));
      const trained = clients.map((i, j) => net.sgd(i, centres[chosen[j]]));
      return { centres: V.meanBy(trained, chosen, centres), assign: put(assign, clients, chosen) };
    },
    models: ({ centres }, net) => everybody(net).map((i) => centres[choose(i, centres, net)]),
  };

  /* Long et al. 2022, Section 3.1: LOCAL from the centre, E-step Eq. 8 (nearest centre), M-step Eq. 9 (plain mean).
     Before round 1 everybody trains once from a common model, and k-means on the results gives the first groups. */
  const fesem = {
    start(net) {
      const common = net.init(0), trained = everybody(net).map((i) => net.sgd(i, common));
      const assign = net.draws.partition(trained, K);
      return { centres: V.meanBy(trained, assign, new Array(K).fill(common)), assign };
    },
    round({ centres, assign }, clients, net) {
      const trained = clients.map((i) => net.sgd(i, centres[assign[i]]));
      const nearest = trained.map((w) => V.nearest(w, centres));
      return { centres: V.meanBy(trained, nearest, centres), assign: put(assign, clients, nearest) };
    },
    models: (server) => at(server.centres, server.assign),
  };

  /* Zeng et al. 2023, Algorithm 1. A fingerprint is the gradient at the first model psi, of length 1 (Section 3.1). */
  function fingerprint(i, psi, net) {
    const gradient = net.gradient(i, psi), length = Math.sqrt(V.dot(gradient, gradient));
    return length > 0 ? V.scaled(gradient, 1 / length) : gradient;
  }
  /* Section 3.2: merge the two groups whose summed fingerprints are most alike, while their cosine is above tau. */
  function merged(prints, tau) {
    const label = prints.map((_, i) => i), gram = prints.map((a) => prints.map((b) => V.dot(a, b)));
    for (;;) {
      let best = { cosine: -Infinity };
      for (let a = 0; a < prints.length; a++)
        for (let b = a + 1; b < prints.length; b++) {
          if (label[a] !== a || label[b] !== b) continue;
          const lengths = Math.sqrt(gram[a][a] * gram[b][b]), cosine = lengths > 0 ? gram[a][b] / lengths : 0;
          if (cosine > best.cosine) best = { cosine, a, b };
        }
      const { cosine, a, b } = best;
      if (!(cosine > tau)) break;
      label.forEach((own, i) => { if (own === b) label[i] = a; });
      gram[a] = gram[a].map((value, i) => value + gram[b][i]);
      for (const row of gram) row[a] += row[b];
    }
    const order = [...new Set(label)]; // groups are numbered by their lowest members
    return label.map((own) => order.indexOf(own));
  }
  const stocfl = {
    start: (net, psi = net.init(0)) => ({
      psi, omega: psi, centres: [], prints: [], assign: net.clients.map(() => -1), trained: net.clients.map(() => false),
    }),
    round(server, clients, net) {
      const { psi, omega } = server, fresh = clients.filter((i) => server.assign[i] < 0), old = server.centres.length;
      const alone = put(server.assign, fresh, fresh.map((_, j) => old + j)); // line 9: a group of one's own
      const prints = [...server.prints, ...fresh.map((i) => fingerprint(i, psi, net))]; // lines 6 to 8
      const group = merged(prints, net.options.tau); // lines 11 to 14
      const assign = alone.map((own) => (own < 0 ? -1 : group[own]));
      const parts = [...new Set(group)].map((k) => group.flatMap((own, i) => (own === k ? [i] : [])));
      const members = prints.map((_, own) => alone.filter((other, i) => other === own && server.trained[i]).length);
      const theta = parts.map((part) => { // the model of the part with most trained members; the mean of equal ones
        const most = Math.max(...at(members, part)), largest = part.filter((own) => members[own] === most);
        return largest.length === 1 || most === 0 ? server.centres[largest[0]] || psi : V.mean(at(server.centres, largest));
      });
      const pull = [{ weight: net.options.lam, anchor: omega }];
      const trained = clients.map((i) => net.sgd(i, theta[assign[i]], pull)); // line 23
      return {
        psi, assign,
        omega: V.mean(clients.map((i) => net.sgd(i, omega))), // lines 24 and 19
        prints: parts.map((part) => V.sum(at(prints, part))), // line 10: cosines ignore scale, so a sum will do
        centres: V.meanBy(trained, at(assign, clients), theta), // line 21
        trained: put(server.trained, clients, clients.map(() => true)),
      };
    },
    models(server, net) { // Section 4.4: whoever was never sampled has the model of the closest group
      const { psi, omega, prints, centres, assign } = server;
      const alike = (own) => V.argmin(prints.map((print) => -V.cosine(own, print)));
      return assign.map((k, i) => centres[k < 0 ? alike(fingerprint(i, psi, net)) : k] || omega);
    },
  };

  /* Zhang et al. 2025, Algorithm 1: omega <- omega - eta (grad l + mu (omega - Omega) + lambda (phi - Phi)), where
     Omega is the group's centre and Phi the mean of all phi. A softmax has no hidden layers, so phi is the whole model
     (split=None in cflkit), and groups go by the cosine of whole models (Eq. 3, rank=None), which are short already. */
  function closest(w, centres, current) {
    const cosines = centres.map((centre) => V.cosine(w, centre)), top = Math.max(...cosines) - TIE;
    return cosines[current] >= top ? current : cosines.findIndex((value) => value >= top);
  }
  const lcfed = {
    start: (net, model = net.init(0)) => ({
      own: net.clients.map(() => model), phi: model, assign: net.draws.groups(K), centres: new Array(K).fill(model),
    }),
    round({ own, phi, assign, centres }, clients, net) {
      const { mu, lam } = net.options;
      const pulls = (i) => [{ weight: mu, anchor: centres[assign[i]] }, { weight: lam, anchor: phi }];
      const trained = clients.map((i) => net.sgd(i, own[i], pulls(i)));
      const news = put(own, clients, trained); // line 11: means over the last known models of all devices
      const now = put(assign, clients, clients.map((i) => closest(news[i], centres, assign[i]))); // line 10
      return { own: news, phi: V.mean(news), assign: now, centres: V.meanBy(news, now, centres) };
    },
    models: (server) => server.own,
  };

  return { fedavg, local, oracle, ifca, fesem, stocfl, lcfed };
})();
