"""The frames of each chapter's step-through: charts and sentences, made from a saved history."""

import json
import math
from collections import Counter
from statistics import fmean, mode

import numpy as np
from steps import Frame, Panel, Steps

from cflkit.workbook import places

PERCENT = [(0, "0"), (0.25, "25"), (0.5, "50"), (0.75, "75"), (1, "100")]


def _history(chapter: str) -> dict:
    """Load what ``book/measure/histories.py`` has run for a chapter."""
    return json.loads((places.BOOK / "histories" / f"{chapter}.json").read_text("utf-8"))


def span(values, margin: float = 0.06) -> tuple[float, float]:
    """From the least to the largest value, with a margin."""
    low, high = min(values), max(values)
    return low - margin * (high - low), high + margin * (high - low)


def stocfl() -> Steps:
    """Slide the threshold: fingerprints merge; beside them the two ways to train the global model."""
    history = _history("stocfl")
    frames = [_threshold(frame, history) for frame in history["frames"]]
    return Steps([f"{frame['tau']:g}" for frame in history["frames"]], [frames])


def _threshold(frame: dict, history: dict) -> Frame:
    points, truths, assign = history["points"], history["truth"], frame["assign"]
    prints = Panel("Fingerprints", span([x for x, _ in points]), span([y for _, y in points]), 300, 220)
    members = Counter(assign)
    colours: dict[int, str] = {}
    for k, size in members.most_common():  # the largest cluster of a rotation has its colour
        colour = "abcd"[mode(t for t, a in zip(truths, assign, strict=True) if a == k)]
        colours[k] = "alone" if size == 1 else "rest" if colour in colours.values() else colour
        own = [p for p, a in zip(points, assign, strict=True) if a == k]
        middle = [fmean(axis) for axis in zip(*own, strict=True)]
        for point in own:
            prints.line([point, middle], f"link {colours[k]}")
    for point, a, truth in zip(points, assign, truths, strict=True):
        prints.mark(*point, "abcd"[truth], colours[a])
    curves = [_curves(name, frame[update]) for name, update in
              (("as listed [%]", "parallel"), ("as released [%]", "chained"))]  # fmt: skip
    ends = [100 * frame[update]["accuracy"][-1] for update in ("parallel", "chained")]
    alone = sum(size == 1 for size in members.values())
    count = f"{len(members)} cluster{'s' * (len(members) > 1)}" + f", {alone} of them a single client" * (alone > 0)
    last = len(frame["parallel"]["accuracy"]) - 1
    says = (f"{count}; there are 4 rotations. After {last} rounds the cluster models reach "
            f"{ends[0]:.0f}% with the listing's parallel update, {ends[1]:.0f}% with the chained one.")  # fmt: skip
    return Frame([prints, *curves], says, [str(len(members)), *(f"{end:.1f}" for end in ends)])


def _curves(title: str, scores: dict) -> Panel:
    last = len(scores["accuracy"]) - 1
    panel = Panel(title, (0, last), (0, 1), 155, 220, "round", [(0, "0"), (last, str(last))], PERCENT)
    panel.line(list(enumerate(scores["global_accuracy"])), "dashed")
    panel.line(list(enumerate(scores["accuracy"])), "a strong")
    return panel


def fesem() -> Steps:
    """Step through rounds: clients walk towards the bisector, from the centre or from where they stood."""
    history = _history("fesem")
    ways = history["centre"], history["personal"]
    crossing = [i for i, moved in enumerate(history["personal"][1]["moved"]) if moved]
    one = next(i for i in crossing if not any(row["moved"][i] for row in history["centre"]))
    frames = [[_walk(rounds, t, one) for t in range(len(rounds))] for rounds in ways]
    return Steps([str(t) for t in range(1, len(frames[0]) + 1)], frames)


def _walk(rounds: list[dict], t: int, one: int) -> Frame:
    row, x, y = rounds[t], (-1.3, 2.3), (-0.25, 4.0)
    panel = Panel("One round of training", x, y, 340, 270, xticks=[(0, "own"), (0.5, "halfway"), (1, "rival")])
    panel.line([(0.5, y[0]), (0.5, y[1])], "dashed")
    for i in [i for i in range(len(row["end"])) if i != one] + [one]:
        (bx, by), (ex, ey) = row["begin"][i], row["end"][i]
        part = min([1, *((edge - b) / (e - b) for b, e, edge in ((bx, ex, x[0]), (bx, ex, x[1]), (by, ey, y[1]))
                         if (edge - b) * (e - b) > 0)])  # fmt: skip
        if not (x[0] <= bx <= x[1] and by <= y[1]):
            continue  # begins beyond the paper
        end = bx + part * (ex - bx), by + part * (ey - by)
        kind = ("b" if row["moved"][i] else "a") + " one" * (i == one)
        panel.line([(bx, by), end], f"step {kind}")
        panel.mark(*end, "c" if row["moved"][i] else "a", kind, 1.3 if i == one else 0.7)
    for at in (0, 1):
        panel.mark(at, 0, "d", "", 1.2)
    course = Panel("Adjusted Rand index", (1, len(rounds)), (0, 1.05), 250, 220, "round",
                   [(1, "1"), (len(rounds), str(len(rounds)))], [(0, "0"), (0.5, "0.5"), (1, "1")])  # fmt: skip
    course.course([[(k, r["ari"]) for k, r in enumerate(rounds, 1)]], [""], t + 1)
    moved = sum(row["moved"])
    says = (f"{moved} of {len(row['end'])} clients move" if moved else "Nobody moves") + (
        f". The bold client {'moves' if row['moved'][one] else 'stays'}. "
        f"Afterwards the clusters agree with the rotations by {row['ari']:.2f}; 1 is perfect, 0 is chance.")
    return Frame([panel, course], says, [str(moved), f"{row['ari']:.2f}"])


def foundations() -> Steps:
    """Slide the skew of the labels: what clients hold, and what one model for all is worth to them."""
    rows = _history("foundations")["frames"]
    return Steps([f"{row['alpha']:g}" for row in rows], [[_mix(rows, k) for k in range(len(rows))]])


def _mix(rows: list[dict], now: int) -> Frame:
    counts, alphas = rows[now]["counts"], [row["alpha"] for row in rows]
    clients, labels = len(counts), len(counts[0])
    mix = Panel("Labels of 16 clients", (-0.7, clients - 0.3), (labels - 0.3, -0.7), 340, 250, "client",
                yticks=[(label, str(label)) for label in range(labels)], bare=True)  # fmt: skip
    used = []
    for client, held in enumerate(counts):
        shares = [n / sum(held) for n in held]
        used.append(math.exp(-sum(share * math.log(share) for share in shares if share)))
        for label, share in enumerate(shares):
            if share:
                mix.disc(client, label, 9.5 * share**0.5, "a")
    ticks = [(math.log10(alpha), f"{alpha:g}") for alpha in alphas[1::2]]
    course = Panel("Accuracy [%]", (math.log10(alphas[0]), math.log10(alphas[-1])), (0.4, 1), 260, 250, "α", ticks,
                   PERCENT[2:])  # fmt: skip
    lines = [[(math.log10(row["alpha"]), row[name]) for row in rows] for name in ("one", "alone")]
    course.course(lines, ["one model", "alone"], math.log10(alphas[now]))
    one, alone, mean = 100 * rows[now]["one"], 100 * rows[now]["alone"], sum(used) / clients
    says = (f"A client holds {mean:.1f} of {labels} labels, counted by the entropy of its mix. On these, one model "
            f"for all reaches {one:.0f}%, training alone {alone:.0f}%.")  # fmt: skip
    return Frame([mix, course], says, [f"{mean:.1f}", f"{one:.1f}", f"{alone:.1f}"])


def mdicfl() -> Steps:
    """Step from noise to samples, then to the means of the samples and of the digits."""
    history = _history("mdicfl")
    frames = [_search(history["frames"], k) for k in range(len(history["frames"]))]
    last = history["frames"][-1]
    likeness = f"{last['like']:.2f}"
    ends = ["The mean of 30 samples of each class. Digits begin to show, most clearly the 0. The cosine with the "
            f"mean digits is {likeness} for the same rotation, {last['unlike']:.2f} for others.",
            "The mean training digits of each class and rotation, which the server has never seen."]  # fmt: skip
    for what, rows, says in zip(("samples", "digits"), history["means"], ends, strict=True):
        panels = [_tiles(f"Means of the {what}", rows), _sure(history["frames"], last)]
        frames.append(Frame(panels, says, ["–", "–", likeness]))
    return Steps([*(str(f["step"]) for f in history["frames"]), "mean", "digits"], [frames])


def _search(frames: list[dict], now: int) -> Frame:
    frame = frames[now]
    own, other = 100 * frame["own"], 100 * frame["other"]
    count = f"After {frame['step']} step{'s' * (frame['step'] > 1)} of descent on the pixels"
    says = (f"{count if now else 'Noise'}: the model that they are made with is {own:.0f}% sure of the class, "
            f"the models of other clusters {other:.0f}%.")  # fmt: skip
    if now == len(frames) - 1:
        says += " The eye still sees noise."
    panels = [_tiles("One sample a class", frame["pixels"]), _sure(frames, frame)]
    return Frame(panels, says, [f"{own:.1f}", f"{other:.1f}", f"{frame['like']:.2f}"])


def _tiles(title: str, rows: list[str]) -> Panel:
    """Set 8 x 8 pictures, one for each cluster and class, beside and below each other, a pixel apart."""
    classes, side = len(rows[0]) // 64, 9
    sheet = np.full((len(rows), side, classes, side), -1)
    sheet[:, :8, :, :8] = np.array([[17 * int(value, 16) for value in row] for row in rows]).reshape(
        len(rows), classes, 8, 8).transpose(0, 2, 1, 3)  # fmt: skip
    ticks = [(c + 0.45, str(c)) for c in range(classes)]
    names = [(r + 0.5, f"{90 * r}°") for r in range(len(rows))]
    panel = Panel(title, (0, classes), (len(rows), 0), 350, 174, xticks=ticks, yticks=names, bare=True)
    panel.pixels(sheet.reshape(side * len(rows), side * classes))
    return panel


def _sure(frames: list[dict], now: dict) -> Panel:
    panel = Panel("Sure of the class [%]", (0, len(frames) - 1), (0, 1.1), 250, 190, "step",
                  [(k, str(f["step"])) for k, f in enumerate(frames) if k % 2 == 0], PERCENT[::2])  # fmt: skip
    lines = [[(k, f[name]) for k, f in enumerate(frames)] for name in ("own", "other")]
    panel.course(lines, ["own model", "others"], frames.index(now))
    return panel


def lcfed() -> Steps:
    """Step through rounds: accuracy over both pulls, of personal models or of the centres."""
    history = _history("lcfed")
    rounds, scores = history["rounds"], ("personal_accuracy", "accuracy")
    return Steps([*map(str, rounds)], [[_surface(history, name, k) for k in range(len(rounds))] for name in scores])


def _surface(history: dict, name: str, now: int) -> Frame:
    pulls, grids = history["pulls"], history[name]
    every = [value for grid in grids for row in grid for value in row]
    n, low, high = len(pulls), min(every), max(every)
    ticks = [(k + 0.5, f"{pull:g}") for k, pull in enumerate(pulls)]
    panel = Panel("Accuracy [%]; upwards: μ", (0, n), (0, n), 340, 270, "λ, pull to the global embedding", ticks,
                  ticks, bare=True)  # fmt: skip
    for a, row in enumerate(grids[now]):
        for b, value in enumerate(row):
            panel.box(b + 0.03, a + 0.03, 0.94, 0.94, "a", 0.05 + 0.5 * (value - low) / (high - low))
            panel.text(b + 0.5, a + 0.5, f"{100 * value:.1f}", "tick middle cell")
    last = {(a, b): value for a, row in enumerate(grids[-1]) for b, value in enumerate(row)}
    top = max(last, key=lambda at: (last[at], -at[0], -at[1]))
    rounds = history["rounds"]
    course = Panel("Over the rounds [%]", (rounds[0], rounds[-1]), (min(0.4, low), 1.05), 250, 230, "round",
                   [(t, str(t)) for t in rounds], PERCENT[2:])  # fmt: skip
    lines = [[(t, grid[a][b]) for t, grid in zip(rounds, grids, strict=True)] for a, b in (top, (0, 0))]
    course.course(lines, ["best", "no pull"], rounds[now])
    best, none = 100 * grids[now][top[0]][top[1]], 100 * grids[now][0][0]
    mu, lam = (f"{pulls[k]:g}" for k in top)
    says = (f"With μ = {mu} and λ = {lam}, the best pair in the end, accuracy is {best:.1f}%. "
            f"Without any pull it is {none:.1f}%.")  # fmt: skip
    return Frame([panel, course], says, [mu, lam, f"{best:.1f}", f"{none:.1f}"])


def fedcg() -> Steps:
    """Step through rounds: in which domains the teacher puts images of the four rotations."""
    ways = map(_history("fedcg").get, ("printed", "learning"))
    frames = [[_domains(rounds, t) for t in range(len(rounds))] for rounds in ways]
    return Steps([str(t) for t in range(len(frames[0]))], frames)


def _domains(rounds: list[list[list[int]]], now: int) -> Frame:
    found = rounds[now]
    panel = Panel("Images by rotation and domain", (-0.5, 3.5), (3.5, -0.5), 300, 230, "domain",
                  [(d, "ABCD"[d]) for d in range(4)], [(r, f"{90 * r}°") for r in range(4)], bare=True)  # fmt: skip
    for rotation, row in enumerate(found):
        for domain, images in enumerate(row):
            if images:
                panel.disc(domain, rotation, 20 * (images / sum(row)) ** 0.5, "abcd"[domain])
    totals = [[sum(column) for column in zip(*table, strict=True)] for table in rounds]
    largest = [max(total) / sum(total) for total in totals]
    course = Panel("Largest domain [%]", (0, len(rounds) - 1), (0, 1.1), 290, 230, "round",
                   [(t, str(t)) for t in range(0, len(rounds), 4)], PERCENT)  # fmt: skip
    course.course([list(enumerate(largest))], [""], now)
    share, used = 100 * largest[now], sum(total > 0 for total in totals[now])
    says = f"{used} of 4 domains hold images. The largest holds {share:.0f}%; a quarter would be even."
    return Frame([panel, course], says, [f"{share:.1f}", str(used)])


PICTURES = {made.__name__: made for made in (foundations, mdicfl, fesem, stocfl, lcfed, fedcg)}
