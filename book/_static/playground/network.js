/* The network "linear" of cflkit/models/networks.py, softmax(W x + b), as a flat vector (W row by row, then b), and what
   a client does with it (cflkit/engine/local.py): stochastic gradient descent, a loss, a gradient. */
"use strict";

playground.network = (pool) => {
  const { PIXELS, CLASSES } = playground.federation, bias = CLASSES * PIXELS, size = bias + CLASSES;
  const p = new Float64Array(CLASSES); // logits of the image at hand, then probabilities

  function forward(w, row) {
    const from = row * PIXELS;
    for (let c = 0; c < CLASSES; c += 5) { // five labels at a time: the processor adds them up side by side
      let s0 = w[bias + c], s1 = w[bias + c + 1], s2 = w[bias + c + 2], s3 = w[bias + c + 3], s4 = w[bias + c + 4];
      for (let q = 0, at = c * PIXELS; q < PIXELS; q++, at++) {
        const x = pool[from + q];
        if (x === 0) continue;
        s0 += w[at] * x;
        s1 += w[at + PIXELS] * x;
        s2 += w[at + 2 * PIXELS] * x;
        s3 += w[at + 3 * PIXELS] * x;
        s4 += w[at + 4 * PIXELS] * x;
      }
      p[c] = s0; p[c + 1] = s1; p[c + 2] = s2; p[c + 3] = s3; p[c + 4] = s4;
    }
  }

  /* Position of the largest logit. */
  function guess() {
    let best = 0;
    for (let c = 1; c < CLASSES; c++) if (p[c] > p[best]) best = c;
    return best;
  }

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
    for (let i = 0; i < batch.length; i++) {
      const from = rows[batch[i]] * PIXELS;
      forward(w, rows[batch[i]]);
      loss(y[batch[i]]);
      p[y[batch[i]]] -= 1;
      for (let c = 0, at = 0; c < CLASSES; c++) {
        const error = p[c] / batch.length;
        g[bias + c] += error;
        for (let q = from; q < from + PIXELS; q++, at++) g[at] += error * pool[q];
      }
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
    let sum = 0;
    for (let i = 0; i < y.length; i++) {
      forward(w, rows[i]);
      sum += loss(y[i]);
    }
    return sum / y.length;
  }

  /* Of every label, the share of a test set's images that model w names rightly. */
  function recalls(w, { rows, y }) {
    const right = new Array(CLASSES).fill(0), all = right.slice();
    for (let i = 0; i < y.length; i++) {
      forward(w, rows[i]);
      all[y[i]]++;
      if (guess() === y[i]) right[y[i]]++;
    }
    return right.map((n, label) => n / all[label]);
  }

  /* PyTorch's first weights of a linear layer: uniform in +-1 / sqrt(inputs). */
  const init = (random) => Float64Array.from({ length: size }, () => (2 * random() - 1) / Math.sqrt(PIXELS));

  return { gradient, sgd, meanLoss, recalls, init };
};
