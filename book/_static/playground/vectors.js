/* Vectors of numbers, which models and gradients are: means, distances, cosines, k-means. */
const playground = {}; // every script adds its module

playground.vectors = (() => {
  const total = (values) => values.reduce((sum, value) => sum + value, 0);
  const dot = (a, b) => a.reduce((sum, value, q) => sum + value * b[q], 0);
  const squaredDistance = (a, b) => a.reduce((sum, value, q) => sum + (value - b[q]) ** 2, 0);
  const scaled = (a, by) => a.map((value) => value * by);
  const unit = (a) => scaled(a, 1 / (Math.sqrt(dot(a, a)) || 1)); // zero stays zero
  const cosine = (a, b) => dot(a, b) / Math.sqrt(dot(a, a) * dot(b, b)) || 0; // 0 if either is zero
  const sum = (vectors) => vectors.reduce((a, b) => a.map((value, q) => value + b[q]));
  const mean = (vectors) => scaled(sum(vectors), 1 / vectors.length);
  /* Mean of the vectors of each group; a group without any keeps its old one. */
  const meanBy = (vectors, group, old) => old.map((kept, k) => {
    const own = vectors.filter((_, i) => group[i] === k);
    return own.length ? mean(own) : kept;
  });

  /* Position of the least value; of equal ones, the first. */
  const argmin = (values) => values.indexOf(Math.min(...values));
  const nearest = (v, centres) => argmin(centres.map((centre) => squaredDistance(v, centre)));

  /* A position, drawn in proportion to the weights. */
  function pick(weights, random) {
    let left = random() * total(weights);
    return Math.max(0, weights.findIndex((weight) => (left -= weight) < 0));
  }

  /* Lloyd's k-means, the best of several starts by k-means++: the group of each point. */
  function kmeans(points, k, starts, random) {
    const runs = Array.from({ length: starts }, () => {
      let centres = [points[Math.floor(random() * points.length)]], group = [], before;
      while (centres.length < k) {
        const far = points.map((v) => Math.min(...centres.map((centre) => squaredDistance(v, centre))));
        centres.push(points[pick(far, random)]);
      }
      do {
        before = group;
        group = points.map((v) => nearest(v, centres));
        centres = meanBy(points, group, centres);
      } while (group.some((own, i) => own !== before[i]));
      return { group, inertia: total(points.map((v, i) => squaredDistance(v, centres[group[i]]))) };
    });
    return runs[argmin(runs.map(({ inertia }) => inertia))].group;
  }
  return { total, dot, unit, cosine, sum, mean, meanBy, argmin, nearest, pick, kmeans };
})();
