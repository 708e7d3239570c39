/* The network "linear" of cflkit/models/networks.py, softmax(W x + b), as a flat vector (W row by row, then b), and what
   a client does with it (cflkit/engine/local.py): stochastic gradient descent, a loss, a gradient. */
"use strict";

playground.network = (pool) => {
  const { PIXELS, CLASSES } = playground.federation, bias = CLASSES * PIXELS, size = bias + CLASSES;
  const p = new Float64Array(CLASSES); // logits of the image at hand, then probabilities

  /* Half of a digit's pixels are white, which adds nothing: image r has ink at places[begins[r]], places[begins[r] + 1], ... */
  const places = new Uint8Array(pool.length), ink = new Float64Array(pool.length), begins = new Uint32Array(pool.length / PIXELS + 1);
  for (let at = 0, n = 0; at < pool.length; at++) {
    if (pool[at]) { places[n] = at % PIXELS; ink[n++] = pool[at]; }
    begins[Math.floor(at / PIXELS) + 1] = n;
  }

  function forward(w, row) {
    for (let c = 0, begin = begins[row], end = begins[row + 1], from = 0; c < CLASSES; c++, from += PIXELS) {
      let logit = w[bias + c];
      for (let k = begin; k < end; k++) logit += w[from + places[k]] * ink[k];
      p[c] = logit;
    }
  }

  function guess(best = 0) {
    for (let c = 1; c < CLASSES; c++) if (p[c] > p[best]) best = c;
    return best;
  }

  /* Cross-entropy of the logits, which become probabilities. */
  function loss(y, sum = 0) {
    const top = p[guess()], logit = p[y];
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
      for (let c = 0, begin = begins[rows[i]], end = begins[rows[i] + 1]; c < CLASSES; c++) {
        const from = c * PIXELS, error = p[c] / batch.length;
        for (let k = begin; k < end; k++) g[from + places[k]] += error * ink[k];
        g[bias + c] += error;
      }
    }
    return g;
  }

  /* w <- w - lr (grad f(w) + sum_s weight_s (w - anchor_s)), batch by batch (cflkit/engine/sgd.py). */
  function sgd(start, data, batches, lr, pulls = []) {
    const w = start.slice(), g = new Float64Array(size);
    for (const batch of batches) {
      gradient(w, data, batch, g);
      for (const { weight, anchor } of pulls) for (let q = 0; q < size; q++) g[q] += weight * (w[q] - anchor[q]);
      for (let q = 0; q < size; q++) w[q] -= lr * g[q];
    }
    return w;
  }

  /* Mean cross-entropy of model w on a client's training images. */
  function meanLoss(w, { rows, y }, sum = 0) {
    for (let i = 0; i < rows.length; i++) { forward(w, rows[i]); sum += loss(y[i]); }
    return sum / rows.length;
  }

  /* Of every label, the share of a test set's images that model w names rightly. */
  function recalls(w, { rows, y }) {
    const right = new Float64Array(CLASSES), all = new Float64Array(CLASSES);
    rows.forEach((row, i) => { forward(w, row); all[y[i]] += 1; right[y[i]] += guess() === y[i]; });
    return Array.from(right, (hits, label) => hits / all[label]);
  }

  /* PyTorch's first weights of a linear layer: uniform in +-1 / sqrt(inputs). */
  const init = (random) => Float64Array.from({ length: size }, () => (2 * random() - 1) / Math.sqrt(PIXELS));

  return { gradient, sgd, meanLoss, recalls, init };
};
