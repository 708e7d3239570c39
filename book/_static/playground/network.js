/* The network "linear" of cflkit/models/networks.py, softmax(W x + b), as a flat vector w (W row by row, then b),
   and what a client does with it (cflkit/engine/local.py): a loss, a gradient, stochastic gradient descent. */
playground.network = (() => {
  const { PIXELS, CLASSES } = playground.federation, BIAS = CLASSES * PIXELS, SIZE = BIAS + CLASSES;
  const { total } = playground.vectors, p = new Float64Array(CLASSES); // of the image at hand: logits, then softmax

  /* Put the logits W x + b into p; the label that has the greatest is the model's guess. */
  function guess(w, x) {
    for (let c = 0, from = 0; c < CLASSES; c++, from += PIXELS) {
      let logit = w[BIAS + c];
      for (let q = 0; q < PIXELS; q++) logit += w[from + q] * x[q];
      p[c] = logit;
    }
    return p.reduce((best, logit, c) => (logit > p[best] ? c : best), 0);
  }

  /* Put the probabilities exp(logit_c) / sum_d exp(logit_d) into p. */
  function softmax(w, x) {
    const top = p[guess(w, x)];
    let sum = 0;
    for (let c = 0; c < CLASSES; c++) sum += p[c] = Math.exp(p[c] - top);
    for (let c = 0; c < CLASSES; c++) p[c] /= sum;
    return p;
  }

  /* Mean cross-entropy, -log p_y. */
  const loss = (w, images) => -total(images.map(({ x, y }) => Math.log(softmax(w, x)[y]))) / images.length;

  /* Its mean gradient: (p - onehot(y)) x' for W, p - onehot(y) for b. */
  function gradient(w, images) {
    const g = new Float64Array(SIZE);
    for (const { x, y } of images) {
      softmax(w, x)[y] -= 1;
      for (let c = 0, from = 0; c < CLASSES; c++, from += PIXELS) {
        const error = p[c] / images.length;
        for (let q = 0; q < PIXELS; q++) g[from + q] += error * x[q];
        g[BIAS + c] += error;
      }
    }
    return g;
  }

  /* w <- w - lr (grad f(w) + sum_s weight_s (w - anchor_s)), batch by batch (cflkit/engine/sgd.py). */
  function sgd(start, batches, lr, pulls = []) {
    const w = start.slice();
    for (const batch of batches) {
      const g = gradient(w, batch);
      for (const { weight, anchor } of pulls)
        for (let q = 0; q < SIZE; q++) g[q] += weight * (w[q] - anchor[q]);
      for (let q = 0; q < SIZE; q++) w[q] -= lr * g[q];
    }
    return w;
  }

  /* Of every label, the share of its test images that model w names rightly. */
  const recalls = (w, images) => Array.from({ length: CLASSES }, (_, label) => {
    const own = images.filter(({ y }) => y === label);
    return own.filter(({ x }) => guess(w, x) === label).length / own.length;
  });

  /* PyTorch's first weights of a linear layer: uniform in +-1 / sqrt(inputs). */
  const init = (random) => Float64Array.from({ length: SIZE }, () => (2 * random() - 1) / Math.sqrt(PIXELS));
  return { loss, gradient, sgd, recalls, init };
})();
