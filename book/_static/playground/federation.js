/* Who holds which images: forty clients of 8 x 8 digits, dealt as cflkit.federation.rotated and shifted deal them. */
"use strict";

playground.federation = (() => {
  const SIDE = 8, PIXELS = 64, CLASSES = 10, SHADES = 8, CLIENTS = 40, IMAGES = 60;
  /* A true group's images are turned by `degrees`, or its label y is read as y + shift (mod 10). */
  const DOMAINS = {
    rotated: [0, 90, 180, 270].map((degrees) => ({ degrees, shift: 0, says: degrees ? `turned by ${degrees}°` : "upright" })),
    shifted: [0, 3, 6, 9].map((shift) => ({ degrees: 0, shift, says: shift ? `label y called y + ${shift}` : "usual labels" })),
    same: [{ degrees: 0, shift: 0, says: "all alike" }],
  };

  /* The digits of digits.js: a letter holds two pixels of eight shades; labels in their own string. */
  function unpack({ alphabet, pixels, labels, train }) {
    const codes = Array.from(pixels, (letter) => alphabet.indexOf(letter));
    const x = Float64Array.from(codes.flatMap((code) => [code >> 3, code & 7]), (shade) => shade / (SHADES - 1));
    return { x, y: Array.from(labels, Number), train };
  }

  /* An image turned anticlockwise by right angles: numpy.rot90 `times` times. */
  function turned(image, times) {
    const once = (_, at) => image[(at % SIDE) * SIDE + SIDE - 1 - Math.floor(at / SIDE)];
    return times ? turned(image.map(once), times - 1) : image;
  }

  /* Deal the digits: `images` names the domains, `alpha` is the Dirichlet law's (null: no skew of labels). */
  function make(digits, images, alpha, seed) {
    const domains = DOMAINS[images], { generator, permutation, labelCounts } = playground.draws;
    const total = digits.y.length, pool = new Float64Array(domains.length * total * PIXELS), label = [];
    domains.forEach(({ degrees, shift }, d) => {
      for (let row = 0; row < total; row++) {
        pool.set(turned(digits.x.subarray(row * PIXELS, (row + 1) * PIXELS), degrees / 90), (d * total + row) * PIXELS);
        label.push((digits.y[row] + shift) % CLASSES);
      }
    });
    const rows = (d, keep) => digits.y.map((_, row) => row).filter(keep).map((row) => d * total + row);
    const set = (ids) => ({ rows: ids, y: ids.map((id) => label[id]) });
    const clients = Array.from({ length: CLIENTS }, (_, i) => {
      const truth = Math.floor(i * domains.length / CLIENTS), random = generator(seed, "client", i);
      const stock = rows(truth, (row) => row < digits.train);
      let ids = permutation(stock.length, random).slice(0, IMAGES).map((at) => stock[at]);
      if (alpha !== null) {
        const counts = labelCounts(IMAGES, CLASSES, alpha, generator(seed, "law", i));
        ids = counts.flatMap((count, y) => {
          const own = stock.filter((id) => label[id] === y), order = permutation(own.length, random);
          return Array.from({ length: count }, (_, j) => own[order[j % own.length]]); // again where there are too few
        });
      }
      const own = set(ids), often = (y) => own.y.filter((other) => other === y).length;
      return { ...own, truth, label: own.y.reduce((a, b) => (often(b) > often(a) ? b : a)) }; // most frequent one
    });
    return { pool, clients, tests: domains.map((_, d) => set(rows(d, (row) => row >= digits.train))), domains };
  }

  return { make, unpack, turned, DOMAINS, PIXELS, CLASSES, SIDE };
})();
