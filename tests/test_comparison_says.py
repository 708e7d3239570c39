"""The page of the comparison says what its records say: new runs that make a sentence false are noticed.

Every entry quotes a piece of ``book/comparison.md`` that stands there once, and computes whether it is true.
Federations go by their protocols without ``common_``; *level* means not to be told apart, by the page's own rule.
"""

import json
import math
from collections import Counter
from functools import cache, partial
from itertools import product

import pytest

from cflkit.engine import metrics
from cflkit.workbook import comparison, factors, places, protocols, repeats, schema
from cflkit.workbook.comparison import CLUSTERS, TUNED, Row
from cflkit.workbook.measured import measured

PAGE = " ".join((places.BOOK / "comparison.md").read_text("utf-8").split())
ROT, SHIFT, SKEW = ("rot_r20", "rot_r100"), ("shift_r20", "shift_r100"), ("rot_skew_r20", "rot_skew_r100")
FIFTH, WHOLE = zip(ROT, SHIFT, SKEW, strict=True)  # a fifth of the clients take part in a round, or all
EVERYWHERE = FIFTH + WHOLE
WHY, SKEW_WHY = "why", "skew_why"  # a fifth of the clients, one factor of a method changed
SERVERS = [*(places.ROOT / "benchmarks" / "results").glob("server-*.json")]
FACTORED = {WHY: factors.ROTATIONS, SKEW_WHY: factors.SKEWED}
ALL = "all"  # all methods
OWN = "own_accuracy"  # on a client's own mix of labels
LCFED, STOCFL = ("lcfed", "lcfed-centre"), ("stocfl", "stocfl-chained")
BACK_SEARCH, GENERATOR = "mdicfl-1", "mdicfl-2"
BY_LABELS = ("fedgroup", "fesem", "stocfl")  # what groups by labels where these are skewed
TIED = ("ditto", "fedper", "lcfed-centre")  # whose clients have models of their own, tied to the others
CHAIN, CENTRES = "fedavg-chained", "lcfed-served"  # rows that score another model of a method's runs
BETTER_SERVED = ("oracle", "fesem", *STOCFL, "mdicfl", "ditto", "lcfed-centre", CENTRES)  # than by LCFed's listing
UNREACHED = ("fesem-personal", "fesem-random-personal")  # FeSEM whose centres reach no client
# what words mean
CHANCE = 0.1  # adjusted Rand index below which groups have next to nothing to do with the true clusters
SHORT, HALF_WAY = 0.3, (0.3, 0.7)  # far from the true clusters, and half-way to them
NEAR, FAR = 0.5, 5  # points of accuracy
CLIENTS = 80
HARDLY, MANY = CLIENTS / 10, CLIENTS / 2  # moves: at most that is hardly a client, from that on they are many


# ---------------------------------------------------------------------- rows and runs
@cache
def standing(federation) -> dict[str, Row]:
    """The rows of a federation, by label."""
    if where := FACTORED.get(federation):
        there = [factor for factor in factors.FACTORS if factor.federation == where]
        names = {name for factor in there for name in (factor.label, factor.base)}
        return {name: row for name in names if (row := factors.row_of(name, where))}
    return {row.method.label: row for row in comparison.standings(f"common_{federation}")}


@cache
def complete(federation):
    """Labels of the rows that have all the seeds which their table states."""
    found = standing(federation).items()
    planned = {label: schema.planned(f"common_{federation}", row.method.runs) for label, row in found}
    return [label for label, row in found if len(row.measured.runs) >= planned[label]]


def labels(names, federation):
    """Labels of one or several methods, or of all that are complete; ``mdicfl`` is each complete row of MD-ICFL."""
    if names == ALL:
        return complete(federation)
    if names == "mdicfl":
        found = [label for label in complete(federation) if label.startswith("mdicfl")]
        assert found, f"no row of MD-ICFL is complete in {federation}"
        return found
    return [names] if isinstance(names, str) else [label for name in names for label in labels(name, federation)]


def others(names, federation):
    """Labels of all methods that are complete, but for these."""
    return [label for label in labels(ALL, federation) if label not in labels(names, federation)]


def rows(names, federations):
    listed = [federations] if isinstance(federations, str) else federations
    return [standing(where)[label] for where in listed for label in labels(names, where)]


def every(test, names, federations):
    """Whether something is so in every run."""
    return all(test(run) for row in rows(names, federations) for run in row.measured.runs)


def seeds(count, of, test, names, federations):
    """Whether something is so in just so many of so many seeds, for each of the rows."""
    found = [[*map(test, row.measured.runs)] for row in rows(names, federations)]
    return all((sum(each), len(each)) == (count, of) for each in found)


def mean(what, name, federation):
    """The mean over seeds; of the only row that has this name."""
    (row,) = rows(name, federation)
    return metrics.spread([what(run) for run in row.measured.runs])["mean"]


def more(what, one, other, share=1):
    """Whether a number is larger for one method than for another in all seeds that both have, or in a share."""
    for a, b in product(rows(*one), rows(*other)):
        x, y = ({run["seed"]: what(run) for run in row.measured.runs} for row in (a, b))
        common = x.keys() & y.keys()
        if not common or sum(x[seed] > y[seed] for seed in common) < share * len(common):
            return False
    return True


# ---------------------------------------------------------------------- who is ahead
def gaps(one, other, federations, metric="accuracy"):
    """How far each of these rows is from each of those in its federation, paired over the seeds that both have."""
    for where in [federations] if isinstance(federations, str) else federations:
        for a, b in product(rows(one, where), rows(other, where)):
            x, y = a.values(metric), b.values(metric)
            common = sorted(x.keys() & y.keys())
            yield metrics.paired_difference([x[seed] for seed in common], [y[seed] for seed in common])


def told(word, one, other, federations, metric="accuracy"):
    """Whether the page's rule has this word for each pair of rows; below three seeds it has none."""
    return all(comparison.interval(gap).split()[-1] == word for gap in gaps(one, other, federations, metric))


ahead, behind, level = (partial(told, word) for word in ("ahead", "behind", "undecided"))


def leads(*which):
    """The mean differences, in points."""
    return [gap["mean"] for gap in gaps(*which)]


def far_ahead(*which):
    return ahead(*which) and min(leads(*which)) > FAR


def order(metric, federation):
    """The labels, best first."""
    scores = {row.method.label: [*row.values(metric).values()] for row in rows(ALL, federation)}
    score = {label: metrics.spread(values) for label, values in scores.items() if values}
    return sorted(score, key=lambda label: -score[label]["mean"])


def grouping(federation):
    """The methods that group clients."""
    return {row.method.label for row in rows(ALL, federation) if row.method.kind == "clusters"}


def grouped_badly(federation):
    """Those of them that have less than half of what the true clusters have, on the mean over seeds."""
    return {label for label in grouping(federation) if mean(ari, label, federation) < 0.5}


def matters_most(kind):
    """The three methods whose accuracy the number of those who take part changes most, in any of their rows."""
    few, all_ = ({row.method: row.accuracy for row in rows(ALL, where)} for where in kind)
    change = {}
    for row in few.keys() & all_.keys():
        change[row.runs] = max(change.get(row.runs, 0), abs(all_[row] - few[row]))
    return set(sorted(change, key=change.get)[-3:])


# ---------------------------------------------------------------------- what is so of a run
def ari(run, t=-1):
    """Adjusted Rand index with the true clusters after a round, the last one if left out."""
    return run["rounds"][t]["ari"]


def moves(run, after=0, until=math.inf):
    """How many moves between clusters there are later than one round, and up to another."""
    return sum(t["moved"] for t in run["rounds"] if after < t["round"] <= until)


def by_chance(run):
    """Whether its groups have next to nothing to do with the true clusters in the end."""
    return abs(ari(run)) < CHANCE


def still_after(t):
    return lambda run: moves(run, t) <= HARDLY


def at_chance(until):
    return lambda run: all(abs(ari(run, t)) < CHANCE for t in range(1, until + 1))


def true(run):
    """Whether it ends with the true clusters."""
    return ari(run) == 1


def not_true(run):
    return not true(run)


def closest(run):
    """The round after which it is closest to the true clusters."""
    return max(range(1, 60), key=lambda t: ari(run, t))


def since(run):
    """The round from which on it has the true clusters; infinite if it does not end with them."""
    without = [t["round"] for t in run["rounds"] if t["ari"] != 1]
    return math.inf if not_true(run) else max(without, default=-1) + 1


def sizes(*wanted):
    """Clusters that have these sizes in the end, the largest first."""
    return lambda run: run["final"]["sizes"] == [*wanted]


def of_one_kind(part):
    """A list with an entry for each client, divided by true cluster."""
    length = len(part) // CLUSTERS
    return [part[length * k : length * (k + 1)] for k in range(CLUSTERS)]


def parts(run):
    """For each true cluster, how many of its clients share a model; the same accuracy tells it in older records."""
    each = run["clients"]
    return [sorted(Counter(part).values()) for part in of_one_kind(each.get("cluster", each["accuracy"]))]


def undivided(run):
    return all(len(part) == 1 for part in parts(run))


def merged_and_split(run):
    """Whether two true clusters end in one, another one in two, and the fourth alone."""
    split = [part for part in parts(run) if len(part) > 1]
    return len(split) == 1 and sizes(*sorted([40, 20, *split[0]], reverse=True))(run)


def served(run):
    """For each cluster, how many clients it has of each true one."""
    found = {}
    for k, part in enumerate(of_one_kind(run["clients"]["cluster"])):
        for cluster in part:
            found.setdefault(cluster, Counter())[k] += 1
    return [*found.values()]


def short_of_true(run):
    """How many points its accuracy is below that of the true clusters with the same seed."""
    where = run["protocol"].removeprefix("common_")
    return standing(where)["oracle"].values("accuracy")[run["seed"]] - 100 * run["final"]["accuracy"]


def near_true(run):
    return abs(short_of_true(run)) < NEAR


def loses_a_quarter(run):
    accuracy = 100 * run["final"]["accuracy"]
    return abs(accuracy / (accuracy + short_of_true(run)) - 0.75) < 0.03


def drawn_once(run):
    """Whether IFCA asked all clients of its first models once: as many as five rounds of a fifth of them."""
    before, first = (t["down"] for t in run["rounds"][:2])
    return before == 5 * first


def first_split(run):
    return next((t["round"] for t in run["rounds"] if t["clusters"] > 1), math.inf)


def one_kind_after(updates):
    """Whether FedCG has all images in one domain in each round after so many updates of its teacher."""
    return lambda run: all(t["largest_share"] == 1 for t in run["rounds"][updates * setting("refresh")(run) + 1 :])


def several_kinds(run):
    """Whether FedCG has, from its teacher's first update on, a tenth of the images outside the largest domain."""
    return all(t["largest_share"] < 0.9 for t in run["rounds"][setting("refresh")(run) + 1 :])


def setting(name):
    """A parameter of a run's method, None if it has no such."""
    return lambda run: run["config"]["method"].get(name)


def method(label, federation):
    """The parameters of a method as it was run."""
    return standing(federation)[label].measured.runs[0]["config"]["method"]


def differ_in(one, other):
    """The parameters in which two rows of one method differ, wherever they were run."""
    pairs = [(method(one, where), method(other, where)) for where in EVERYWHERE]
    return {name for a, b in pairs for name in a if a[name] != b[name]}


def same_groups(federation):
    """Whether both rows of StoCFL have the same groups in every round, as far as records tell."""
    kept = ("ari", "nmi", "sizes", "moved")
    one, other = (
        [([[t[name] for name in kept] for t in run["rounds"]], run["clients"].get("cluster"))
         for run in standing(federation)[label].measured.runs]
        for label in STOCFL
    )  # fmt: skip
    return one == other


def second_run(record, metric):
    """By how much a run that was made again ends above the first."""
    (first, again) = next(note["apart"][metric] for note in repeats.notes() if note["record"].startswith(record))
    return again - first


def constant(run, start=0):
    """Whether the groups are as good in every round."""
    return len({t["ari"] for t in run["rounds"][start:]}) == 1


def tried(label):
    """Held-out accuracy by the weights that were tried."""
    chosen = {method.label: found for method, found in comparison.tuning()}
    return {tuple(sorted(weights.items())): accuracy for weights, accuracy, _ in chosen[label]}


def one_seed(label):
    """Whether each setting that was tried has one run."""
    names = [name for name in protocols.protocols()[TUNED]["methods"] if name.rpartition("-")[0] == label]
    return {len(measured(TUNED, name).runs) for name in names} == {1}


# ---------------------------------------------------------------------- what the page says
PROTOCOL = [
    ("80 clients of 300 MNIST images each, in four true clusters of 20",
     lambda: every(lambda run: {"images": "mnist", "clients": CLIENTS, "samples_per_client": 300}.items()
                   <= run["config"]["federation"].items(), ALL, EVERYWHERE)
     and every(sizes(20, 20, 20, 20), "oracle", EVERYWHERE)),
    ("trains a LeNet for two passes a round",
     lambda: every(lambda run: (run["config"]["model"], run["config"]["local"]["epochs"]) == ("lenet", 2),
                   ALL, EVERYWHERE)),
    ("There are 60 rounds", lambda: {row.measured.rounds for row in rows(ALL, EVERYWHERE)} == {60}),
    ("Before the first round FeSEM trains every client for two passes, FedGroup for one, and both begin with what",
     lambda: all(run["rounds"][0]["down"] == 5 * run["rounds"][1]["down"] for where in FIFTH
                 for row in rows(["fesem", "fedgroup"], where) for run in row.measured.runs)
     and every(lambda run: setting("pretrain_epochs")(run) == 1, "fedgroup", EVERYWHERE)
     and not any(run["rounds"][0].get("down", 0) for row in rows(ALL, EVERYWHERE) for run in row.measured.runs
                 if not row.method.runs.startswith(("fesem", "fedgroup", "lcfed")))),
    ("In one half of the federations a fifth of the clients take part in each round",
     lambda: every(lambda run: run["config"]["participation"] == 0.2, ALL, FIFTH)
     and every(lambda run: run["config"]["participation"] == 1, ALL, WHOLE)),
    ("Where the text says only *MD-ICFL*, it means both rows",
     lambda: all(len(labels("mdicfl", where)) == 2 for where in EVERYWHERE)),
    ("was run with rotations only", lambda: not any("fedcg" in standing(where) for where in SHIFT)),
    ("it has put all images into one kind after its first update in four seeds of five",
     lambda: all(seeds(4, 5, one_kind_after(1), "fedcg", where) for where in ("rot_r20", "rot_skew_r20"))),
    ("in the fifth after its second, with even labels and with skewed ones",
     lambda: all(seeds(5, 5, one_kind_after(2), "fedcg", where) for where in ("rot_r20", "rot_skew_r20"))),
    ("Where all take part, it does so after its first update in all three seeds",
     lambda: all(seeds(3, 3, one_kind_after(1), "fedcg", where) for where in ("rot_r100", "rot_skew_r100"))),
    ("That is with one updating period, ten rounds, which its paper does not print",
     lambda: every(lambda run: setting("refresh")(run) == 10, "fedcg", ROT)),
    ("Of five periods the shortest did best on held-out images, by less than half a point",
     lambda: max(tried("fedcg"), key=tried("fedcg").get) == min(tried("fedcg")) and one_seed("fedcg")
     and len(tried("fedcg")) == 5 and 0 < max(tried("fedcg").values()) - tried("fedcg")[(("refresh", 10),)] < 0.5),
    ("all images are in one kind: after three updates or sooner, in each of three seeds",
     lambda: seeds(3, 3, one_kind_after(3), "fedcg-period", WHY)
     and every(lambda run: setting("refresh")(run) == 1, "fedcg-period", WHY)),
    ("Its accuracy is not to be told apart from that with ten rounds, nor from FedAvg's",
     lambda: level("fedcg-period", ["fedcg", "fedavg"], WHY)),
    ("So FedCG is nowhere to be told apart from FedAvg",
     lambda: level("fedcg", "fedavg", ["rot_r20", "rot_r100", "rot_skew_r20", "rot_skew_r100"])),
    ("a student that never learns keeps several kinds, in all three seeds",
     lambda: seeds(3, 3, several_kinds, "fedcg-still", WHY)
     and every(lambda run: setting("lr_student")(run) == 0, "fedcg-still", WHY)),
    ("There FedCG is not to be told apart from [FedCG with such a student, nor from FedCG with one domain]",
     lambda: level(["fedcg-still", "fedcg-one"], "fedcg", WHY)),
    ("finds the four rotations there in all three seeds", lambda: seeds(3, 3, true, "fedcg-kmeans", WHY)),
    ("All domains weigh alike, and it ends behind FedAvg", lambda: behind("fedcg-kmeans", "fedavg", WHY)),
    ("a device begins each time with the model of its cluster, and a centre is the mean of those who took part",
     lambda: differ_in(*LCFED) == {"start_from", "average", "mu", "lam"}
     and every(lambda run: (setting("start_from")(run), setting("average")(run)) == ("centre", "sampled"),
               "lcfed-centre", EVERYWHERE)),
    ("The second change, on top of the first, brings the gain",
     lambda: ahead("lcfed-centre", "lcfed-weak-centre", WHY)
     and not ahead("lcfed-weak-centre", "lcfed-weak", WHY)),
    ("All rows of LCFed have sixteen dimensions, where its paper prints fifty",
     lambda: every(lambda run: setting("rank")(run) == 16, LCFED, EVERYWHERE)
     and protocols.protocols()["lcfed_mnist_n3"]["methods"]["lcfed"]["rank"] == 50),
    ("With fifty, three seeds tell no difference in accuracy, neither for the listing nor for our variant",
     lambda: all(level(f"{label}-rank", label, WHY) for label in LCFED)
     and every(lambda run: setting("rank")(run) == 50, [f"{label}-rank" for label in LCFED], WHY)),
    ("The listing then finds all true clusters in each of the three. With sixteen it does so in four seeds of five",
     lambda: seeds(3, 3, true, "lcfed-rank", WHY) and seeds(4, 5, true, "lcfed", "rot_r20")),
    ("The weight of this pull was chosen for each row, so the rows differ in it, too",
     lambda: "lam" in differ_in(*STOCFL)),
    ("With equal weights the chained one is ahead: in one seed of the tuning, with four rotations, and in",
     lambda: all(map(one_seed, STOCFL)) and tried("stocfl").keys() == tried("stocfl-chained").keys()
     and all(tried("stocfl-chained")[weights] > accuracy for weights, accuracy in tried("stocfl").items())
     and ahead("stocfl-chained-weak", "stocfl", SKEW_WHY) and ahead("stocfl-chained", "stocfl-strong", SKEW_WHY)),
    ("It knows nothing of clusters",
     lambda: every(lambda run: setting("global_update")(run) == "chained", CHAIN, EVERYWHERE)),
    ("a round lasts as long as 16 rounds of FedAvg, and as 80 rounds where all take part",
     lambda: [[run["config"]["participation"] * CLIENTS for run in row.measured.runs] for row in rows(CHAIN, ROT)]
     == [[16] * 5, [80] * 3]),
    ("Every method that asks for the number of clusters is told the true one",
     lambda: every(lambda run: setting("k")(run) in (None, CLUSTERS), ALL, EVERYWHERE)),
    ("StoCFL and Sattler's CFL are not told it",
     lambda: every(lambda run: setting("k")(run) is None, [*STOCFL, "cfl"], EVERYWHERE)),
]  # fmt: skip

FROM_TRAINING = [
    ("Where all take part, the first groups of all three are close to chance",
     lambda: every(at_chance(1), ["ifca", "mdicfl", *LCFED], "rot_r100")),
    ("Where a fifth take part, IFCA's first groups are better than chance in two seeds of five",
     lambda: seeds(3, 5, at_chance(1), "ifca", "rot_r20") and every(at_chance(1), ["mdicfl", *LCFED], "rot_r20")),
    ("in four seeds of five it stops early", lambda: seeds(4, 5, still_after(14), "lcfed-centre", "rot_r20")),
    ("and in all of them far from the true clusters",
     lambda: every(lambda run: ari(run) < SHORT, "lcfed-centre", "rot_r20")),
    ("Where all take part it comes closer, in one seed about half-way",
     lambda: more(ari, ("lcfed-centre", "rot_r100"), ("lcfed-centre", "rot_r20"))
     and seeds(1, 3, lambda run: HALF_WAY[0] < ari(run) < HALF_WAY[1], "lcfed-centre", "rot_r100")),
    ("IFCA gets stuck half-way",
     lambda: all(HALF_WAY[0] < mean(ari, "ifca", where) < HALF_WAY[1] for where in ROT)
     and every(still_after(30), "ifca", ROT)),
    ("It moves many clients from the start, and finds next to nothing in the first eight rounds",
     lambda: every(lambda run: moves(run, 0, 10) >= MANY and at_chance(8)(run), "mdicfl", ROT)),
    ("From round 30 on hardly a client moves, but in one seed of back-search",
     lambda: seeds(4, 5, still_after(29), BACK_SEARCH, "rot_r20")
     and every(still_after(29), BACK_SEARCH, "rot_r100") and every(still_after(29), GENERATOR, "rot_r20")),
    ("no seed of back-search ends with the true clusters, and one of five of the generator",
     lambda: seeds(0, 5, true, BACK_SEARCH, "rot_r20") and seeds(1, 5, true, GENERATOR, "rot_r20")),
    ("The generator is ahead by about a point of accuracy; whose clusters are closer to the true ones, five seeds",
     lambda: ahead(GENERATOR, BACK_SEARCH, "rot_r20") and level(GENERATOR, BACK_SEARCH, "rot_r20", "ari")
     and abs(leads(GENERATOR, BACK_SEARCH, "rot_r20")[0] - 1) < NEAR),
    ("Where all take part, two seeds of three of back-search have them, and one of the generator",
     lambda: seeds(2, 3, true, BACK_SEARCH, "rot_r100") and seeds(1, 3, true, "mdicfl-2", "rot_r100")),
    ("There three seeds do not tell the two apart", lambda: level("mdicfl-2", BACK_SEARCH, "rot_r100")),
    ("LCFed by its listing gets furthest on the mean",
     lambda: all(mean(ari, "lcfed", where) > mean(ari, other, where)
                 for where in ROT for other in labels(["ifca", "mdicfl", "lcfed-centre"], where))),
    ("Where all take part it has the true clusters after eight rounds or sooner",
     lambda: every(lambda run: since(run) <= 8, "lcfed", "rot_r100")),
]  # fmt: skip

LABEL_SHIFTS = [
    ("One model gives one answer, and is right a quarter of the time",
     lambda: every(lambda run: abs(run["final"]["accuracy"] - 0.25) < 0.01, "fedavg", SHIFT)),
    ("which stops short of the true clusters with *four rotations*", lambda: every(not_true, "ifca", ROT)),
    ("finds all of them here in every seed, if a fifth of the clients take part",
     lambda: seeds(5, 5, true, "ifca", "shift_r20")),
    ("So does MD-ICFL with the generator, and with back-search in four seeds of five",
     lambda: seeds(5, 5, true, GENERATOR, "shift_r20") and seeds(4, 5, true, BACK_SEARCH, "shift_r20")),
    ("Two true clusters end in one, another one is split",
     lambda: seeds(1, 5, merged_and_split, BACK_SEARCH, "shift_r20")),
    ("and from round 30 on hardly a client moves. It loses",
     lambda: seeds(1, 5, lambda run: not_true(run) and still_after(29)(run), BACK_SEARCH, "shift_r20")),
    ("It loses a quarter of its accuracy there",
     lambda: seeds(1, 5, lambda run: not_true(run) and loses_a_quarter(run), BACK_SEARCH, "shift_r20")),
    ("The other four seeds show nothing of the kind",
     lambda: seeds(4, 5, lambda run: true(run) and near_true(run), BACK_SEARCH, "shift_r20")),
    ("where all take part, one seed of three of back-search ends with such groups, but loses hardly any accuracy",
     lambda: seeds(1, 3, lambda run: merged_and_split(run) and short_of_true(run) < 1, BACK_SEARCH, "rot_r100")),
    ("IFCA mostly comes sooner than MD-ICFL",
     lambda: more(since, ("mdicfl", "shift_r20"), ("ifca", "shift_r20"), share=0.8)),
    ("which is at chance for ten rounds", lambda: every(at_chance(10), "mdicfl", "shift_r20")),
    ("LCFed by its listing finds the clusters too, mostly before MD-ICFL",
     lambda: seeds(5, 5, true, "lcfed", "shift_r20")
     and more(since, ("mdicfl", "shift_r20"), ("lcfed", "shift_r20"), share=0.6)),
    ("FedGroup and FeSEM have them before the first round",
     lambda: every(lambda run: ari(run, 0) == 1, ["fedgroup", "fesem"], "shift_r20")),
    ("StoCFL ends with them but for a single client in two seeds",
     lambda: seeds(3, 5, true, STOCFL, "shift_r20") and seeds(2, 5, sizes(20, 20, 20, 19, 1), STOCFL, "shift_r20")),
    ("FedGroup, FeSEM, IFCA, *StoCFL, parallel* and MD-ICFL with the generator are then not to be told apart from",
     lambda: level(["fedgroup", "fesem", "ifca", "stocfl", GENERATOR], "oracle", "shift_r20")),
    ("*StoCFL, chained* is ahead of them", lambda: ahead("stocfl-chained", "oracle", "shift_r20")),
    ("In four seeds back-search is close to them, too", lambda: seeds(4, 5, near_true, BACK_SEARCH, "shift_r20")),
    ("Two methods do not find the clusters",
     lambda: grouped_badly("shift_r20") == {"lcfed-centre", "cfl"}),
    ("moves few clients, as with rotations",
     lambda: every(lambda run: moves(run) < MANY, "lcfed-centre", ["shift_r20", "rot_r20"])),
    ("Sattler's CFL never splits",
     lambda: every(lambda run: first_split(run) == math.inf, "cfl", "shift_r20")),
    ("MD-ICFL finds hardly anything in the first nine rounds, and has all clusters by round 15, in all three seeds",
     lambda: seeds(3, 3, lambda run: max(ari(run, t) for t in range(1, 10)) < 0.15 and since(run) <= 15,
                   "mdicfl", "shift_r100")),
    ("IFCA's clients stop moving after round 8",
     lambda: every(lambda run: not moves(run, 8), "ifca", "shift_r100")),
    ("In two seeds it has all clusters by then",
     lambda: seeds(2, 3, lambda run: since(run) <= 8, "ifca", "shift_r100")),
    ("In the third two of them share a model, and it loses a quarter of its accuracy",
     lambda: seeds(1, 3, lambda run: sizes(40, 20, 20)(run) and undivided(run) and loses_a_quarter(run),
                   "ifca", "shift_r100")),
    ("*StoCFL, parallel* is a little behind the true clusters",
     lambda: behind("stocfl", "oracle", "shift_r100") and min(leads("stocfl", "oracle", "shift_r100")) > -NEAR),
    ("comes closer to them than with a fifth of the clients, and still stops early",
     lambda: more(ari, ("lcfed-centre", "shift_r100"), ("lcfed-centre", "shift_r20"))
     and every(lambda run: not_true(run) and still_after(10)(run), "lcfed-centre", "shift_r100")),
    ("Sattler's CFL parts one of the four from the others, in every seed, and goes no further",
     lambda: every(lambda run: sizes(60, 20)(run) and undivided(run), "cfl", "shift_r100")),
]  # fmt: skip

STARTS = [
    ("FeSEM with random first clusters stays near random", lambda: mean(ari, "fesem-random", WHY) < CHANCE),
    ("finds the true clusters, but for one client in two of three seeds, from random first clusters too",
     lambda: seeds(1, 3, true, UNREACHED, WHY) and seeds(2, 3, sizes(21, 20, 20, 19), UNREACHED, WHY)),
    ("So runs end alike, wherever their groups began",
     lambda: all(gap["high"] == gap["low"] == 0 for what in ("accuracy", "ari")
                 for gap in gaps("fesem-random-personal", "fesem-personal", WHY, what))),
    ("such centres serve worse than FeSEM's", lambda: behind(UNREACHED, "fesem", WHY)),
    ("clients that keep their own models are grouped right in all three seeds, and clients that start",
     lambda: every(true, ["lcfed-weak", "lcfed-weak-sampled"], WHY)
     and every(lambda run: ari(run) < SHORT, "lcfed-weak-centre", WHY)),
    ("IFCA with equal ones never splits",
     lambda: every(lambda run: first_split(run) == math.inf, "ifca-common", WHY)),
    ("Here [the first draw passes](comparison-factors), in all three seeds with even labels and with skewed ones",
     lambda: all(seeds(3, 3, drawn_once, "ifca-redrawn", where) for where in (WHY, SKEW_WHY))),
    ("So that is not what IFCA lacks: its clusters go wrong later",
     lambda: every(not_true, "ifca-redrawn", [WHY, SKEW_WHY])),
    ("So does a [second run](status-repeated) of one of them on another processor",
     lambda: abs(second_run("common_rot_skew_why/ifca-redrawn", "accuracy")) > 0.02),
    ("which finds far more of the clusters", lambda: second_run("common_rot_skew_why/ifca-redrawn", "ari") > 0.4),
    ("nor has the prior that held-out images choose",
     lambda: level("mdicfl-1-prior", BACK_SEARCH, WHY) and level("mdicfl-1-prior", BACK_SEARCH, WHY, "ari")
     and max(tried(BACK_SEARCH), key=tried(BACK_SEARCH).get) == (("prior_mean", -0.74), ("prior_weight", 1))
     and every(lambda run: (setting("prior_mean")(run), setting("prior_weight")(run)) == (-0.74, 1),
               "mdicfl-1-prior", WHY)),
    ("the chosen prior finds all true clusters in each of three seeds, the printed one in one of five",
     lambda: seeds(3, 3, true, "mdicfl-2-prior", WHY)
     and seeds(1, 5, true, GENERATOR, "rot_r20") and level("mdicfl-2-prior", GENERATOR, WHY)
     and max(tried(GENERATOR), key=tried(GENERATOR).get) == (("prior_mean", -0.74), ("prior_weight", 0.1))
     and every(lambda run: (setting("prior_mean")(run), setting("prior_weight")(run)) == (-0.74, 0.1),
               "mdicfl-2-prior", WHY)),
    ("For back-search first models have no plain effect, nor have ten rounds of FedAvg before them",
     lambda: all(level(["mdicfl-1-distinct", "mdicfl-1-warmup"], "mdicfl-1", WHY, metric)
                 for metric in ("accuracy", "ari"))),
    ("Here different first models find more of the true clusters than equal ones, on the mean over seeds",
     lambda: min(leads("mdicfl-1-distinct", "mdicfl-1", WHY, "ari")) > 0),
    ("so training makes their groups neither worse nor better",
     lambda: every(constant, "fedgroup", EVERYWHERE) and every(partial(constant, start=1), STOCFL, WHOLE)
     and all(map(same_groups, EVERYWHERE))),
    ("so they stay where the first grouping put them, but for one client in one run",
     lambda: sum(moves(run) for row in rows("fesem", EVERYWHERE) for run in row.measured.runs) == 1),
]  # fmt: skip

SKEWED = [
    ("We ran one strength of the skew, with the weights and thresholds that even labels had chosen",
     lambda: every(lambda run: run["config"]["federation"]["alpha"] == 3, ALL, SKEW)
     and all(method(label, skew) == method(label, even)
             for skew, even in zip(SKEW, ROT, strict=True) for label in labels(ALL, skew))),
    ("and not at all with the rotations", lambda: every(by_chance, [*BY_LABELS, "stocfl-chained"], SKEW)),
    ("hardly a client ever moves", lambda: every(still_after(0), [*BY_LABELS, "stocfl-chained"], SKEW)),
    ("FedGroup, FeSEM and *StoCFL, parallel* are then far behind one model for all",
     lambda: far_ahead("fedavg", BY_LABELS, SKEW)),
    ("LCFed finds next to nothing of the rotations", lambda: every(by_chance, LCFED, SKEW)),
    ("find more of them, late",
     lambda: all(mean(ari, one, where) > mean(ari, other, where) + CHANCE
                 and mean(partial(ari, t=10), one, where) < CHANCE
                 for where in SKEW for one in labels(["ifca", "mdicfl"], where) for other in LCFED)),
    ("IFCA and back-search are ahead of one model", lambda: ahead(["ifca", BACK_SEARCH], "fedavg", SKEW)),
    ("ahead of back-search with *four rotations*, is behind it, and not to be told apart from one model",
     lambda: behind(GENERATOR, BACK_SEARCH, "rot_skew_r20") and level(GENERATOR, "fedavg", "rot_skew_r20")
     and ahead(GENERATOR, BACK_SEARCH, "rot_r20")),
    ("Where all take part it is ahead of one model, and not to be told apart from back-search",
     lambda: ahead(GENERATOR, "fedavg", "rot_skew_r100") and level(GENERATOR, BACK_SEARCH, "rot_skew_r100")),
    ("IFCA and MD-ICFL stop short of the true clusters in every seed, and come closer in one seed than in another",
     lambda: every(not_true, ["ifca", "mdicfl"], "rot_skew_r20")
     and all(max(row.values("ari").values()) - min(row.values("ari").values()) > 2 * CHANCE
             for row in rows(["ifca", "mdicfl"], "rot_skew_r20"))),
    ("Sattler's CFL finds next to nothing of them", lambda: every(by_chance, "cfl", "rot_skew_r20")),
    ("IFCA and Sattler's CFL find more, in each of three seeds",
     lambda: all(more(ari, (name, "rot_skew_r100"), (name, "rot_skew_r20")) for name in ("ifca", "cfl"))),
    ("IFCA has all rotations in two seeds, and is level with the true clusters there",
     lambda: seeds(2, 3, lambda run: true(run) and near_true(run), "ifca", "rot_skew_r100")),
    ("In the third it has one rotation right, and two of its models serve a mix",
     lambda: seeds(1, 3, lambda run: sum([*kinds.values()] == [20] for kinds in served(run)) == 1
                   and sum(len(kinds) > 1 for kinds in served(run)) == 2, "ifca", "rot_skew_r100")),
    ("Hardly a client moves after round 20 in that seed, and it ends about four points behind the true clusters",
     lambda: seeds(1, 3, lambda run: not_true(run) and still_after(20)(run)
                   and abs(short_of_true(run) - 4) < NEAR, "ifca", "rot_skew_r100")),
    ("With *four rotations* IFCA has all of them in no seed", lambda: every(not_true, "ifca", ROT)),
    ("MD-ICFL finds some of them in every seed, as with a fifth of the clients a round, and still moves clients",
     lambda: every(lambda run: CHANCE < ari(run) < 1, "mdicfl", SKEW)
     and every(lambda run: moves(run, 30) > HARDLY, "mdicfl", "rot_skew_r100")),
    ("But it begins in round 21",
     lambda: min(first_split(run) for row in rows("cfl", EVERYWHERE) for run in row.measured.runs) == 21),
    ("each of its last clusters lies within one rotation, in every seed",
     lambda: every(lambda run: all(len(kinds) == 1 for kinds in served(run)), "cfl", "rot_skew_r100")),
    ("It comes near the true clusters on the way",
     lambda: every(lambda run: max(ari(run, t) for t in range(1, 60)) > max(0.85, ari(run)),
                   "cfl", "rot_skew_r100")),
    ("in two seeds before round 30, in the third after round 35",
     lambda: seeds(2, 3, lambda run: closest(run) < 30, "cfl", "rot_skew_r100")
     and seeds(1, 3, lambda run: closest(run) > 35, "cfl", "rot_skew_r100")),
    ("Then it splits them on, into more than twelve",
     lambda: every(lambda run: run["final"]["clusters"] > 12, "cfl", "rot_skew_r100")),
    ("It is ahead of one model and of back-search, behind the true clusters, and not to be told apart from IFCA",
     lambda: ahead("cfl", ["fedavg", BACK_SEARCH], "rot_skew_r100") and behind("cfl", "oracle", "rot_skew_r100")
     and level("cfl", ["ifca", GENERATOR], "rot_skew_r100")),
    ("has the same groups as *StoCFL, parallel* there, and is far ahead of it",
     lambda: all(map(same_groups, SKEW)) and far_ahead("stocfl-chained", "stocfl", SKEW)),
    ("It is ahead of one model, and not to be told apart from IFCA and back-search",
     lambda: ahead("stocfl-chained", "fedavg", SKEW) and level("stocfl-chained", ["ifca", BACK_SEARCH], SKEW)),
    ("it is ahead of the generator; where all take part it is not to be told apart from it, nor from Sattler's CFL",
     lambda: ahead("stocfl-chained", GENERATOR, "rot_skew_r20")
     and level("stocfl-chained", [GENERATOR, "cfl"], "rot_skew_r100")),
    ("Chained and parallel differ in the chain and in the weight of the pull",
     lambda: differ_in(*STOCFL) == {"global_update", "lam"}),
    ("A stronger pull alone gains nine points, the chain alone three. On top of the stronger pull the chain gains",
     lambda: ahead(["stocfl-chained-weak", "stocfl-strong"], "stocfl", SKEW_WHY)
     and ahead("stocfl-chained", "stocfl-strong", SKEW_WHY)
     and [round(gap) for gap in (*leads("stocfl-strong", "stocfl", SKEW_WHY),
                                 *leads("stocfl-chained-weak", "stocfl", SKEW_WHY),
                                 *leads("stocfl-chained", "stocfl-strong", SKEW_WHY))] == [9, 3, 18]),
    ("That it waits so long is a default of its released notebook",
     lambda: every(lambda run: setting("min_round")(run) == 21, "cfl", EVERYWHERE)),
    ("*FedAvg, chained* is five points or more ahead of FedAvg there, and not to be told apart from IFCA",
     lambda: min(leads(CHAIN, "fedavg", SKEW)) > 5 and ahead(CHAIN, "fedavg", SKEW) and level(CHAIN, "ifca", SKEW)),
    ("it is ahead of *StoCFL, chained*, whose pull ties cluster models to it, and of all other methods but IFCA",
     lambda: ahead(CHAIN, others([CHAIN, "ifca", "oracle"], "rot_skew_r20"), "rot_skew_r20")),
    ("Where all take part it is behind none of them",
     lambda: not any(behind(CHAIN, label, "rot_skew_r100")
                     for label in others([CHAIN, "oracle"], "rot_skew_r100"))),
    ("Only the true clusters are ahead of it in both", lambda: behind(CHAIN, "oracle", SKEW)),
    ("no method that finds its groups by itself has been shown to beat it on balanced images",
     lambda: not any(behind(CHAIN, label, where) for where in SKEW for label in grouping(where))),
    ("StoCFL, FeSEM and MD-ICFL with the generator are ahead of *FedAvg, chained*, and so is back-search where all",
     lambda: ahead([*STOCFL, "fesem", GENERATOR], CHAIN, ROT) and ahead(BACK_SEARCH, CHAIN, "rot_r100")),
    ("IFCA and FedGroup are not to be told apart from it. With", lambda: level(["ifca", "fedgroup"], CHAIN, ROT)),
    ("a chain hardly helps one model, as an image has four right answers",
     lambda: max(leads(CHAIN, "fedavg", SHIFT)) < NEAR),
    ("Yet *StoCFL, chained* is about a point ahead of the true clusters there",
     lambda: ahead("stocfl-chained", "oracle", SHIFT)
     and all(abs(gap - 1) < NEAR for gap in leads("stocfl-chained", "oracle", SHIFT))),
    ("With a fifth of the clients a round, 60 rounds of a chain last as long as 960 rounds of FedAvg",
     lambda: every(lambda run: run["config"]["rounds"] == 960, "fedavg-long", [WHY, SKEW_WHY])
     and every(lambda run: run["config"]["participation"] * CLIENTS * 60 == 960, CHAIN, FIFTH)),
    ("It ends ahead of the chain in both, and with four rotations also ahead of IFCA's 60 rounds",
     lambda: ahead("fedavg-long", CHAIN, [WHY, SKEW_WHY]) and ahead("fedavg-long", "ifca", WHY)),
    ("The true clusters had been six and nine points ahead of FedAvg",
     lambda: [int(gap) for gap in leads("oracle", "fedavg", ["rot_r20", "rot_skew_r20"])] == [6, 9]),
    ("With as many rounds they are ahead of it by one to two, which is more than a third of its mistakes",
     lambda: ahead("oracle-long", "fedavg-long", [WHY, SKEW_WHY])
     and all(1 < gap < 2 and gap > (100 - rows("fedavg-long", where)[0].accuracy) / 3
             for where in (WHY, SKEW_WHY) for gap in leads("oracle-long", "fedavg-long", where))),
    ("With skewed labels IFCA with as many rounds is not to be told apart from FedAvg",
     lambda: level("ifca-long", "fedavg-long", SKEW_WHY) and every(not_true, "ifca-long", SKEW_WHY)),
    ("in two seeds of three most clients share one of its models",
     lambda: seeds(2, 3, lambda run: run["final"]["sizes"][0] > CLIENTS / 2, "ifca-long", SKEW_WHY)),
    ("sends more than fourteen times what FeSEM sends in 60 rounds",
     lambda: 14 < rows("fedavg-long", WHY)[0].megabytes() / standing("rot_r20")["fesem"].megabytes() < 15),
    ("And with four rotations FeSEM is still ahead after its 60 rounds",
     lambda: ahead("fesem", "fedavg-long", WHY)),
]  # fmt: skip

SERVED = [
    ("where it finds the clusters in every seed, its clients' own models stay behind their centres",
     lambda: {where for where in EVERYWHERE if every(true, "lcfed", where)} == {"rot_r100", *SHIFT}
     and behind("lcfed", CENTRES, ["rot_r100", *SHIFT])),
    ("LCFed by its listing finds most of the true clusters",
     lambda: every(lambda run: ari(run) > 0.5, "lcfed", "rot_r20")),
    ("Its clients' own models are not to be told apart from training alone",
     lambda: level("lcfed", "local", "rot_r20")),
    ("The centres of its clusters are ahead of both, but in one seed of five",
     lambda: ahead(CENTRES, ["lcfed", "local"], "rot_r20")
     and seeds(4, 5, lambda run: 100 * run["final"]["accuracy"]
               > max(standing("rot_r20")[name].values("accuracy")[run["seed"]] for name in ("lcfed", "local")),
               CENTRES, "rot_r20")),
    ("they are not to be told apart from one model. Where all take part it finds",
     lambda: level(CENTRES, "fedavg", "rot_r20")),
    ("Where all take part it finds the true clusters in every seed", lambda: every(true, "lcfed", "rot_r100")),
    ("ahead of training alone, and behind the true clusters, FeSEM, StoCFL, MD-ICFL, Ditto, our variant, and",
     lambda: ahead("lcfed", "local", "rot_r100") and behind("lcfed", BETTER_SERVED, "rot_r100")),
    ("From the other rows three seeds do not tell them apart",
     lambda: level("lcfed", others(["lcfed", "local", *BETTER_SERVED], "rot_r100"), "rot_r100")),
    ("The centres are ahead of one model there", lambda: ahead(CENTRES, "fedavg", "rot_r100")),
    ("With four label shifts it finds all clusters, and again its clients' own models are not to be told apart",
     lambda: every(true, "lcfed", SHIFT) and level("lcfed", "local", "shift_r20")
     and behind("lcfed", CENTRES, "shift_r20")),
    ("where all take part, they are ahead of it, and behind Ditto, FedPer and their centres",
     lambda: ahead("lcfed", "local", "shift_r100") and behind("lcfed", ["ditto", "fedper", CENTRES], "shift_r100")),
    ("With skewed labels it finds none, and with a fifth of the clients a round they are behind training alone",
     lambda: every(by_chance, "lcfed", SKEW)
     and all(behind("lcfed", "local", "rot_skew_r20", metric) for metric in ("accuracy", OWN))
     and far_ahead("lcfed", CENTRES, "rot_skew_r20")),
    ("they are ahead of it on balanced images, and not to be told apart from it on the client's own mix",
     lambda: ahead("lcfed", "local", "rot_skew_r100") and level("lcfed", "local", "rot_skew_r100", OWN)),
    ("models that were trained on the client's own images alone are poor",
     lambda: far_ahead("fedavg", "local", SKEW)),
    ("On its own mix of labels the order is another",
     lambda: all(order("accuracy", where) != order(OWN, where) for where in SKEW)),
    ("are within two points of the true clusters there",
     lambda: max(map(abs, leads([*TIED, "stocfl-chained"], "oracle", SKEW, OWN))) < 2),
    ("apart from IFCA. Yet the clusters of two of them have nothing to do with the rotations",
     lambda: level([*TIED, "stocfl-chained"], "ifca", SKEW, OWN)
     and every(by_chance, ["lcfed-centre", "stocfl-chained"], SKEW)),
    ("With a fifth of the clients a round they are ahead of MD-ICFL",
     lambda: ahead([*TIED, "stocfl-chained"], "mdicfl", "rot_skew_r20", OWN)),
    ("three seeds show that for *LCFed, from the centre* and back-search only",
     lambda: ahead("lcfed-centre", BACK_SEARCH, "rot_skew_r100", OWN)
     and level("lcfed-centre", GENERATOR, "rot_skew_r100", OWN)
     and level(["ditto", "fedper", "stocfl-chained"], "mdicfl", "rot_skew_r100", OWN)),
    ("There Sattler's CFL is not to be told apart from the true clusters, and it is ahead of Ditto, FedPer and",
     lambda: level("cfl", "oracle", "rot_skew_r100", OWN) and ahead("cfl", TIED, "rot_skew_r100", OWN)),
    ("There they are behind training alone", lambda: behind(BY_LABELS, "local", SKEW, OWN)),
    ("With a fifth of the clients a round they are not ahead of one model either",
     lambda: not any(ahead(name, "fedavg", "rot_skew_r20", OWN) for name in BY_LABELS)),
    ("*StoCFL, parallel* is ahead of it, and for the other two three seeds do not tell",
     lambda: ahead("stocfl", "fedavg", "rot_skew_r100", OWN)
     and level(["fedgroup", "fesem"], "fedavg", "rot_skew_r100", OWN)),
]  # fmt: skip

TURNS = [
    ("*StoCFL, parallel* is ahead of IFCA where a fifth take part; where all do, three seeds do not tell",
     lambda: ahead("stocfl", "ifca", "rot_r20") and level("stocfl", "ifca", "rot_r100")),
    ("it ends with two or three models",
     lambda: every(lambda run: run["final"]["clusters"] in (2, 3), "ifca", "rot_r20")),
    ("where IFCA loses none, the two are level",
     lambda: every(sizes(20, 20, 20, 20), "ifca", "shift_r20") and level("stocfl", "ifca", "shift_r20")),
    ("With rotations and skewed labels IFCA is far ahead", lambda: far_ahead("ifca", "stocfl", SKEW)),
    ("How many take part matters most to training alone, to LCFed's listing and to Sattler's CFL",
     lambda: all(matters_most(kind) == {"local", "lcfed", "cfl"} for kind in (ROT, SHIFT, SKEW))),
    ("the lead of the true clusters over it is smaller where all do",
     lambda: all(few > whole for few, whole in zip(leads("oracle", "local", FIFTH), leads("oracle", "local", WHOLE),
                                                   strict=True))),
    ("With even labels it is less than half as large",
     lambda: all(few > 2 * whole for few, whole in (leads("oracle", "local", kind) for kind in (ROT, SHIFT)))),
    ("With even labels and a fifth of the clients a round it hardly splits",
     lambda: every(lambda run: run["final"]["sizes"][0] >= 0.75 * CLIENTS, "cfl", ["rot_r20", "shift_r20"])),
    ("it then splits into seven clusters or more, which are not the rotations, and ends behind one model",
     lambda: every(lambda run: run["final"]["clusters"] >= 7 and by_chance(run), "cfl", "rot_skew_r20")
     and behind("cfl", "fedavg", "rot_skew_r20")),
    ("Where all take part it finds more of the true clusters, on the mean over seeds in each kind of federation",
     lambda: all(mean(ari, "cfl", whole) > mean(ari, "cfl", few) for few, whole in (ROT, SHIFT, SKEW))),
    ("With *four rotations* its seeds differ most: see its spread in the table",
     lambda: max(rows(ALL, "rot_r100"), key=lambda row: metrics.spread([*row.values("accuracy").values()])["std"])
     is standing("rot_r100")["cfl"]),
    ("With skewed labels it is ahead of one model", lambda: ahead("cfl", "fedavg", "rot_skew_r100")),
]  # fmt: skip

ONCE = ["stocfl", "stocfl-chained", "fesem"]  # which measure clients once, from one common model

CHOICE = [
    ("with four label shifts training alone is far ahead of one model, and the true clusters are far ahead",
     lambda: far_ahead("local", "fedavg", SHIFT) and far_ahead("oracle", "local", SHIFT)),
    ("both are ahead of IFCA. FeSEM is ahead of MD-ICFL with back-search, and *StoCFL, chained* of both forms",
     lambda: ahead(ONCE, "ifca", "rot_r20") and ahead("stocfl-chained", "mdicfl", "rot_r20")
     and ahead("fesem", BACK_SEARCH, "rot_r20") and level("fesem", GENERATOR, "rot_r20")
     and level("stocfl", "mdicfl", "rot_r20")),
    ("MD-ICFL pays for it with server work: seconds a round, where the others take a fraction of one",
     lambda: bool(SERVERS)
     and all((1 < row["round"] < 60) if row["label"].startswith("mdicfl") else row["round"] < 0.1
             for file in SERVERS for row in json.loads(file.read_text())["rows"])),
    ("Where all take part three seeds show neither ahead of IFCA or MD-ICFL",
     lambda: level(ONCE, ["ifca", "mdicfl"], "rot_r100")
     and {len(row.measured.runs) for row in rows([*ONCE, "ifca", "mdicfl"], "rot_r100")} == {3}),
    ("FedGroup's, which is not to be told apart from IFCA or MD-ICFL in either case",
     lambda: level("fedgroup", ["ifca", "mdicfl"], ROT)),
    ("MD-ICFL, FedGroup and FeSEM send less than half of what IFCA does",
     lambda: all(2 * row.megabytes() < standing(where)["ifca"].megabytes()
                 for where in EVERYWHERE for row in rows(["mdicfl", "fedgroup", "fesem"], where))),
    ("after 60 rounds of a chain it is not to be told apart from IFCA's 60 rounds, nor after 960 rounds of FedAvg",
     lambda: level(CHAIN, "ifca", SKEW) and level("fedavg-long", "ifca-long", SKEW_WHY)),
    ("Where clusters call the same images by other names, most methods find them",
     lambda: all(2 * len(grouped_badly(where)) < len(grouping(where)) for where in SHIFT)),
    ("The thresholds that we chose split too often there, and too seldom with four label shifts",
     lambda: every(lambda run: run["final"]["clusters"] > CLUSTERS, "cfl", "rot_skew_r100")
     and every(lambda run: run["final"]["clusters"] < CLUSTERS, "cfl", SHIFT)),
    ("a model of its own that is tied to the others is not to be told apart from IFCA",
     lambda: level(TIED, "ifca", SKEW, OWN)),
    ("With a fifth of the clients a round these are ahead of MD-ICFL",
     lambda: ahead(TIED, "mdicfl", "rot_skew_r20", OWN)),
    ("where all take part, Sattler's CFL is ahead of them",
     lambda: ahead("cfl", TIED, "rot_skew_r100", OWN)),
]  # fmt: skip

SAYS = PROTOCOL + FROM_TRAINING + LABEL_SHIFTS + STARTS + SKEWED + SERVED + TURNS + CHOICE


@pytest.mark.parametrize("says, holds", SAYS, ids=[says for says, _ in SAYS])
def test_the_page_says_what_the_records_say(says, holds):
    assert PAGE.count(says) == 1, "this piece does not stand on the page, or more than once"
    assert holds(), "the records do not say so"
