/* The network "linear" of cflkit/models/networks.py, softmax(W x + b), as a flat vector (W row by row, then b), and what
   a client does with it (cflkit/engine/local.py): stochastic gradient descent, a loss, a gradient. */
"use strict";

playground.network = (pool) => {
  const { PIXELS, CLASSES } = playground.federation, bias = CLASSES * PIXELS, size = bias + CLASSES;
  const p = new Float64Array(CLASSES); // logits of the image at hand, then probabilities

  function forward(w, row) {
    for (let c = 0; c < CLASSES; c++) p[c] = w[bias + c];
    for (let q = 0, x; q < PIXELS; q++)
      if ((x = pool[row * PIXELS + q])) for (let c = 0, at = q; c < CLASSES; c++, at += PIXELS) p[c] += w[at] * x;
  }

  const guess = () => p.reduce((best, logit, c) => (logit > p[best] ? c : best), 0);

  /* Cross-entropy of the logits, which become probabilities. */
  function loss(y) {
    const top = p[guess()], logit = p[y];
    let sum = 0;
    for (let c = 0; c < CLASSES; c++) sum += p[c] = Math.exp(p[c] - top);
    for (let c = 0; c < CLASSES; c++) p[c] /= sum;
    return top + Math.log(sum) - logit;
  }

  /* Into g: the mean gradient of the loss, (p - onehot(y)) x', on a client's images at positions `batch`. */
  function gradient(w, { rows, y }, batch, g = new Float64Array(size)) {
    g.fill(0);
    for (const i of batch) {
      forward(w, rows[i]);
      loss(y[i]);
      p[y[i]] -= 1;
      for (let c = 0; c < CLASSES; c++) g[bias + c] += p[c] / batch.length;
      for (let q = 0, x; q < PIXELS; q++)
        if ((x = pool[rows[i] * PIXELS + q] / batch.length)) for (let c = 0, at = q; c < CLASSES; c++, at += PIXELS) g[at] += p[c] * x;
    }
    return g;
  }

  /* w <- w - lr (grad f(w) + sum_s weight_s (w - anchor_s)), batch by batch (cflkit/engine/sgd.py). */
  function sgd(start, data, batches, lr, pulls = []) {
    const w = Float64Array.from(start), g = new Float64Array(size);
    for (const batch of batches) {
      gradient(w, data, batch, g);
      for (const { weight, anchor } of pulls) for (let q = 0; q < size; q++) g[q] += weight * (w[q] - anchor[q]);
      for (let q = 0; q < size; q++) w[q] -= lr * g[q];
    }
    return w;
  }

  /* Mean cross-entropy of model w on a client's training images. */
  function meanLoss(w, { rows, y }) {
    return rows.reduce((sum, row, i) => (forward(w, row), sum + loss(y[i])), 0) / rows.length;
  }

  /* Of every label, the share of a test set's images that model w names rightly. */
  function recalls(w, { rows, y }) {
    const right = rows.map((row, i) => (forward(w, row), guess() === y[i]));
    const share = (own) => own.filter((hit) => hit).length / own.length;
    return Array.from({ length: CLASSES }, (_, label) => share(right.filter((_, i) => y[i] === label)));
  }

  /* PyTorch's first weights of a linear layer: uniform in +-1 / sqrt(inputs). */
  const init = (random) => Float64Array.from({ length: size }, () => (2 * random() - 1) / Math.sqrt(PIXELS));

  return { gradient, sgd, meanLoss, recalls, init };
};
