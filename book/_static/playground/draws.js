/* Everything random in the playground. As in cflkit/rng.py, a draw is a function of what it is for (seed, round,
   client, purpose), never of what ran before it: so a step back and forward again gives the same numbers. */
"use strict";
const playground = {};

playground.draws = (() => {
  /* A generator of numbers in [0, 1) that belongs to a key: the key's FNV-1a hash seeds mulberry32. */
  function generator(...key) {
    let state = 2166136261;
    for (const letter of key.join("/")) state = Math.imul(state ^ letter.charCodeAt(0), 16777619);
    return () => {
      state = (state + 0x6d2b79f5) | 0;
      let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
      mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
      return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
    };
  }

  /* The numbers 0 .. n - 1 in a random order (Fisher and Yates). */
  function permutation(n, random) {
    const order = Array.from({ length: n }, (_, i) => i);
    for (let i = n - 1, j; i > 0; i--) { j = Math.floor(random() * (i + 1)); [order[i], order[j]] = [order[j], order[i]]; }
    return order;
  }

  /* A draw from Gamma(alpha) (Marsaglia and Tsang 2000), for alpha below 1 by way of Gamma(alpha + 1). */
  function gamma(alpha, random) {
    if (alpha < 1) return gamma(alpha + 1, random) * Math.pow(1 - random(), 1 / alpha);
    const d = alpha - 1 / 3, c = 1 / Math.sqrt(9 * d);
    for (;;) {
      const z = Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random()); // normal
      const v = Math.pow(1 + c * z, 3);
      if (v > 0 && Math.log(1 - random()) < z * z / 2 + d - d * v + d * Math.log(v)) return d * v;
    }
  }

  /* How many of `n` images a client has of each label: multinomial in a law from Dir(alpha, ..., alpha). */
  function labelCounts(n, labels, alpha, random) {
    const law = Array.from({ length: labels }, () => gamma(alpha, random)), total = law.reduce((a, b) => a + b), counts = new Array(labels).fill(0);
    for (let i = 0; i < n; i++) {
      let left = random() * total, label = 0;
      while (label < labels - 1 && (left -= law[label]) >= 0) label++;
      counts[label]++;
    }
    return counts;
  }

  /* What a run draws, by round t and client i. A test gives cflkit's own draws in its place. */
  function ofRun(seed, network, clients, share, batchSize) {
    return {
      init: (j) => network.init(generator(seed, "init", j)),
      sample: (t) => permutation(clients, generator(seed, t, "sampling"))
        .slice(0, Math.max(1, Math.round(share * clients))).sort((a, b) => a - b),
      batches(t, i, n) {
        const order = permutation(n, generator(seed, t, i, "batches")), starts = order.filter((_, at) => at % batchSize === 0);
        return starts.map((_, batch) => order.slice(batch * batchSize, (batch + 1) * batchSize));
      },
      groups: (k, random = generator(seed, 0, "R0")) => // LCFed's first groups, R_0
        Array.from({ length: clients }, () => Math.floor(random() * k)),
      partition: (points, k) => playground.vectors.kmeans(points, k, 20, generator(seed, 0, "kmeans")),
    };
  }

  return { generator, permutation, labelCounts, ofRun };
})();
