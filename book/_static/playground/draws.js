/* Everything random in the playground. As in cflkit/rng.py, a draw is a function of what it is for (seed, round,
   client, purpose), never of what ran before it: so a step back and forward again gives the same numbers. */
playground.draws = (() => {
  const { pick, kmeans } = playground.vectors;
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
    const order = [...Array(n).keys()];
    for (let i = n - 1; i > 0; i--) {
      const j = Math.floor(random() * (i + 1));
      [order[i], order[j]] = [order[j], order[i]];
    }
    return order;
  }

  /* How many of n images a client has of each label, if its label law is from Dir(alpha, ..., alpha): by Polya's
     urn the next label is y with a probability in proportion to alpha + the count of y so far. */
  function labelCounts(n, labels, alpha, random) {
    const counts = Array(labels).fill(0);
    for (let i = 0; i < n; i++) counts[pick(counts.map((count) => alpha + count), random)] += 1;
    return counts;
  }

  /* What a run draws, by round t and client i. A test gives cflkit's own draws in its place. */
  const ofRun = (seed, clients, share, batchSize) => ({
    init: (j) => playground.network.init(generator(seed, "init", j)),
    sample: (t) => permutation(clients, generator(seed, t, "sampling"))
      .slice(0, Math.max(1, Math.round(share * clients))).sort((a, b) => a - b),
    batches(t, i, n) {
      const order = permutation(n, generator(seed, t, i, "batches"));
      return Array.from({ length: n / batchSize }, (_, b) => order.slice(b * batchSize, (b + 1) * batchSize));
    },
    groups: (k, random = generator(seed, 0, "R0")) => // LCFed's first groups, R_0
      Array.from({ length: clients }, () => Math.floor(random() * k)),
    partition: (points, k) => kmeans(points, k, 20, generator(seed, 0, "kmeans")),
  });
  return { generator, permutation, labelCounts, ofRun };
})();
