/* The methods, as in cflkit/methods: a server's state goes in, a new one comes out, and nothing else is kept.

   A method has `start(net)`, `round(server, clients, net)` and `models(server, net)`, every client's model to be
   scored. A state may have `assign`, the group of every client, -1 where it is not known yet, and `centres`, the
   groups' models. `net` (run.js) has what clients can do. All clients hold equally many images here, so a mean over
   clients needs no weights n_i. */
playground.methods = (() => {
  const K = 4, V = playground.vectors; // groups that IFCA, FeSEM and LCFed are told of
  const at = (values, positions) => positions.map((i) => values[i]);
  const forAll = (net, value) => net.clients.map(() => value);
  /* A copy of `values`, one a client, with news for some clients. */
  const renew = (values, clients, news) => values.map((old, i) => news[clients.indexOf(i)] ?? old);
  /* Each client trains its group's centre, which becomes the mean of what its clients return. */
  const trainGroups = (centres, group, clients, net, pulls) =>
    V.meanBy(clients.map((i) => net.sgd(i, centres[group[i]], pulls)), at(group, clients), centres);

  /* McMahan et al. 2017, Algorithm 1: w <- mean_i of w_i. */
  const fedavg = {
    start: (net) => ({ model: net.init(0) }),
    round: (server, clients, net) => ({ model: V.mean(clients.map((i) => net.sgd(i, server.model))) }),
    models: (server, net) => forAll(net, server.model),
  };

  const local = {
    start: (net) => ({ own: forAll(net, net.init(0)) }),
    round: ({ own }, clients, net) => ({ own: renew(own, clients, clients.map((i) => net.sgd(i, own[i]))) }),
    models: (server) => server.own,
  };

  /* FedAvg within each true group. */
  const oracle = {
    start: (net) => ({ centres: net.domains.map(() => net.init(0)), assign: net.clients.map((one) => one.truth) }),
    round: ({ centres, assign }, clients, net) => ({ centres: trainGroups(centres, assign, clients, net), assign }),
    models: (server) => at(server.centres, server.assign),
  };

  /* Ghosh et al. 2020, Algorithm 1, Option II: j = argmin_k F_i(theta_k), ties to the lowest; theta_j trains. */
  const choices = (centres, net) =>
    net.clients.map((_, i) => V.argmin(centres.map((model) => net.loss(i, model))));
  const ifca = {
    start(net) {
      const centres = Array.from({ length: K }, (_, k) => net.init(k));
      return { centres, assign: forAll(net, -1), choice: choices(centres, net) };
    },
    round(server, clients, net) {
      const { assign, choice } = server, centres = trainGroups(server.centres, choice, clients, net);
      return { centres, assign: renew(assign, clients, at(choice, clients)), choice: choices(centres, net) };
    },
    models: (server) => at(server.centres, server.choice),
  };

  /* Long et al. 2022, Section 3.1: LOCAL from the centre, E-step Eq. 8 (nearest centre), M-step Eq. 9 (plain mean).
     Before round 1 everybody trains once from a common model, and k-means on the results gives the first groups. */
  const fesem = {
    start(net) {
      const common = net.init(0), trained = net.clients.map((_, i) => net.sgd(i, common));
      const assign = net.draws.partition(trained, K);
      return { centres: V.meanBy(trained, assign, Array(K).fill(common)), assign };
    },
    round({ centres, assign }, clients, net) {
      const trained = clients.map((i) => net.sgd(i, centres[assign[i]]));
      const nearest = trained.map((w) => V.nearest(w, centres));
      return { centres: V.meanBy(trained, nearest, centres), assign: renew(assign, clients, nearest) };
    },
    models: (server) => at(server.centres, server.assign),
  };

  /* Zeng et al. 2023, Algorithm 1. A fingerprint is the gradient at the first model psi, of length 1 (Section 3.1);
     a group is represented by the sum of its members' (line 10), because cosines ignore scale. */
  const fingerprint = (i, psi, net) => V.unit(net.gradient(i, psi));
  /* Section 3.2, lines 11 to 14: as long as the most alike of the groups have a cosine above tau, merge those two.
     What comes out are lists of the groups that were merged. Inner products of sums are sums of inner products. */
  function merge(prints, tau) {
    const gram = prints.map((one) => prints.map((other) => V.dot(one, other))), merged = prints.map((_, k) => [k]);
    const inner = (one, other) => V.total(one.flatMap((i) => other.map((j) => gram[i][j])));
    const cosine = ([one, other]) => inner(one, other) / Math.sqrt(inner(one, one) * inner(other, other)) || 0;
    for (;;) {
      const pairs = merged.flatMap((one, a) => merged.slice(a + 1).map((other) => [one, other]));
      const cosines = pairs.map(cosine), most = Math.max(...cosines);
      if (!(most > tau)) return merged;
      const [one, other] = pairs[cosines.indexOf(most)];
      one.push(...other);
      merged.splice(merged.indexOf(other), 1);
    }
  }
  const stocfl = {
    start(net) {
      const psi = net.init(0);
      return { psi, omega: psi, centres: [], prints: [], assign: forAll(net, -1), trained: forAll(net, false) };
    },
    round({ psi, omega, centres, prints, assign, trained }, clients, net) {
      const fresh = clients.filter((i) => assign[i] < 0); // lines 6 to 9: a new client is a group of its own
      const alone = renew(assign, fresh, fresh.map((_, j) => centres.length + j));
      const all = [...prints, ...fresh.map((i) => fingerprint(i, psi, net))];
      const merged = merge(all, net.options.tau);
      const now = alone.map((own) => merged.findIndex((parts) => parts.includes(own)));
      const members = all.map((_, k) => alone.filter((own, i) => own === k && trained[i]).length);
      const theta = merged.map((parts) => { // the model of the part with most trained members; of equals, the mean
        const most = Math.max(...at(members, parts)), largest = parts.filter((k) => members[k] === most);
        return most ? V.mean(at(centres, largest)) : psi;
      });
      return {
        psi,
        omega: V.mean(clients.map((i) => net.sgd(i, omega))), // lines 24 and 19
        centres: trainGroups(theta, now, clients, net, [{ weight: net.options.lam, anchor: omega }]), // 23, 21
        prints: merged.map((parts) => V.sum(at(all, parts))),
        assign: now,
        trained: trained.map((before, i) => before || clients.includes(i)),
      };
    },
    models({ psi, omega, centres, prints, assign }, net) { // Section 4.4: a client never met takes the closest
      const closest = (own) => V.argmin(prints.map((print) => -V.cosine(own, print)));
      return assign.map((k, i) => centres[k < 0 ? closest(fingerprint(i, psi, net)) : k] ?? omega);
    },
  };

  /* Zhang et al. 2025, Algorithm 1: omega <- omega - eta (grad l + mu (omega - Omega) + lambda (phi - Phi)), where
     Omega is the group's centre and Phi the mean of all phi. A softmax has no hidden layers, so phi is the whole
     model (split=None in cflkit), and groups go by the cosine of whole models (Eq. 3, rank=None), which are short.
     Cosines that differ by less than 1e-12 are equal, and move nobody. */
  function closest(w, centres, current) {
    const cosines = centres.map((centre) => V.cosine(w, centre)), top = Math.max(...cosines) - 1e-12;
    return cosines[current] >= top ? current : cosines.findIndex((value) => value >= top);
  }
  const lcfed = {
    start(net) {
      const model = net.init(0);
      return { own: forAll(net, model), phi: model, assign: net.draws.groups(K), centres: Array(K).fill(model) };
    },
    round({ own, phi, assign, centres }, clients, net) {
      const { mu, lam } = net.options;
      const pulls = (i) => [{ weight: mu, anchor: centres[assign[i]] }, { weight: lam, anchor: phi }];
      const news = renew(own, clients, clients.map((i) => net.sgd(i, own[i], pulls(i)))); // lines 6 to 9
      const now = renew(assign, clients, clients.map((i) => closest(news[i], centres, assign[i]))); // line 10
      return { own: news, phi: V.mean(news), assign: now, centres: V.meanBy(news, now, centres) }; // line 11
    },
    models: (server) => server.own,
  };
  return { fedavg, local, oracle, ifca, fesem, stocfl, lcfed };
})();
