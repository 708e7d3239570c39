/* Who holds which images: forty clients of 8 x 8 digits, dealt as cflkit.federation.rotated and shifted deal them.
   A digit is {x, y}: its pixels between 0 and 1, row by row, and its label. */
playground.federation = (() => {
  const SIDE = 8, PIXELS = SIDE * SIDE, CLASSES = 10, SHADES = 8, CLIENTS = 40, IMAGES = 60;
  const turn = (degrees) => ({ degrees, shift: 0, says: degrees ? `turned by ${degrees}°` : "upright" });
  const rename = (shift) => ({ degrees: 0, shift, says: shift ? `label y called y + ${shift}` : "usual labels" });
  /* A true group's images are turned by `degrees`, and its label y is read as y + shift (mod 10). */
  const DOMAINS = {
    rotated: [0, 90, 180, 270].map(turn),
    shifted: [0, 3, 6, 9].map(rename),
    same: [turn(0)],
  };

  /* The digits of digits.js, where a letter holds two pixels of eight shades. */
  function unpack({ alphabet, pixels, labels, train }) {
    const codes = Array.from(pixels, (letter) => alphabet.indexOf(letter));
    const shades = codes.flatMap((code) => [Math.floor(code / SHADES), code % SHADES]);
    const grey = Float64Array.from(shades, (shade) => shade / (SHADES - 1));
    const image = (i) => grey.slice(i * PIXELS, (i + 1) * PIXELS);
    const digits = [...labels].map((label, i) => ({ x: image(i), y: Number(label) }));
    return { train: digits.slice(0, train), test: digits.slice(train) };
  }

  /* An image turned anticlockwise by right angles: numpy.rot90 `times` times. */
  function turned(image, times) {
    const once = (_, at) => image[(at % SIDE) * SIDE + SIDE - 1 - Math.floor(at / SIDE)];
    return times ? turned(image.map(once), times - 1) : image;
  }

  /* Deal the digits: `images` names the domains; labels have a law from Dir(alpha, ..., alpha), or none (null). */
  function make(digits, images, alpha, seed) {
    const { generator, permutation, labelCounts } = playground.draws, domains = DOMAINS[images];
    const seen = (part) => domains.map(({ degrees, shift }) =>
      part.map(({ x, y }) => ({ x: turned(x, degrees / 90), y: (y + shift) % CLASSES })));
    const stocks = seen(digits.train);
    const clients = Array.from({ length: CLIENTS }, (_, i) => {
      const truth = Math.floor(i * domains.length / CLIENTS), random = generator(seed, "client", i);
      const deal = (stock, n) => { // where there are too few, some come again
        const order = permutation(stock.length, random);
        return Array.from({ length: n }, (_, j) => stock[order[j % stock.length]]);
      };
      const ofLabel = (count, label) => deal(stocks[truth].filter(({ y }) => y === label), count);
      const data = alpha === null ? deal(stocks[truth], IMAGES)
        : labelCounts(IMAGES, CLASSES, alpha, generator(seed, "law", i)).flatMap(ofLabel);
      const counts = Array.from({ length: CLASSES }, (_, label) => data.filter(({ y }) => y === label).length);
      return { data, truth, label: counts.indexOf(Math.max(...counts)) }; // its most frequent label
    });
    return { clients, tests: seen(digits.test), domains };
  }
  return { make, unpack, turned, PIXELS, CLASSES, SIDE };
})();
