/* Linear algebra of models as vectors: means, distances, cosines, k-means. */
"use strict";

playground.vectors = (() => {
  function dot(a, b, total = 0) {
    for (let q = 0; q < a.length; q++) total += a[q] * b[q];
    return total;
  }

  const squaredDistance = (a, b) => a.reduce((total, value, q) => total + (value - b[q]) * (value - b[q]), 0);

  const sum = (vectors) => vectors.reduce((total, v) => total.map((value, q) => value + v[q]));
  const scaled = (v, by) => v.map((value) => value * by);
  const mean = (vectors) => scaled(sum(vectors), 1 / vectors.length);

  /* Mean of the vectors of each group 0 .. keep.length - 1; a group without any keeps what it has. */
  function meanBy(vectors, group, keep) {
    return keep.map((old, k) => {
      const own = vectors.filter((_, i) => group[i] === k);
      return own.length ? mean(own) : old;
    });
  }

  /* Position of the least value; of equal ones, the first. */
  const argmin = (values) => values.reduce((best, value, i) => (value < values[best] ? i : best), 0);
  const nearest = (v, centres) => argmin(centres.map((centre) => squaredDistance(v, centre)));
  const cosine = (a, b) => {
    const lengths = Math.sqrt(dot(a, a) * dot(b, b));
    return lengths > 0 ? dot(a, b) / lengths : 0;
  };

  /* Lloyd's k-means from several k-means++ starts; the group of each point in the best of them. */
  function kmeans(points, k, starts, random) {
    let best = { inertia: Infinity };
    for (let start = 0; start < starts; start++) {
      let centres = [points[Math.floor(random() * points.length)]], group, before;
      while (centres.length < k) {
        const far = points.map((v) => Math.min(...centres.map((c) => squaredDistance(v, c))));
        let left = random() * far.reduce((a, b) => a + b), i = 0;
        while (i < far.length - 1 && (left -= far[i]) >= 0) i++;
        centres.push(points[i]);
      }
      do {
        before = String(group);
        group = points.map((v) => nearest(v, centres));
        centres = meanBy(points, group, centres);
      } while (String(group) !== before);
      const inertia = points.reduce((total, v, i) => total + squaredDistance(v, centres[group[i]]), 0);
      if (inertia < best.inertia) best = { inertia, group };
    }
    return best.group;
  }

  return { dot, sum, mean, meanBy, scaled, argmin, nearest, cosine, kmeans };
})();
