"""How a network's kernels become the few functions that are called from outside.

Images go into lanes and outputs come out. Between the two the layers' kernels are called one after the other, ahead
and back. Around it all runs stochastic gradient descent. :func:`write` lists what there is, and
:mod:`cflkit.engine.fast.compiled.library` says what each does.
"""

from __future__ import annotations  # LLVM's types are named in annotations; the book's pages do without the package

from collections.abc import Callable

from llvmlite import ir

from cflkit.engine.fast.compiled.kernels import (
    Buffer,
    Kernel,
    Places,
    convolve,
    convolve_inputs,
    convolve_weights,
    dense,
    dense_inputs,
    dense_weights,
    rectify,
    spread,
)
from cflkit.engine.fast.compiled.plan import Conv, Dense, Plan
from cflkit.engine.fast.compiled.writing import I32, I64, POINTER, Code, Function, Int, Sum


# ---------------------------------------------------------------------- in and out
def _image(f: Function, order: ir.Value, count: Int, lane) -> Int:
    """Which image a lane holds; lanes that are left over hold the last one."""
    return f.integer(order, f.least(lane, count - 1))


def gather(code: Code, plan: Plan, to: Buffer) -> Function:
    """Write ``gather(kept, x, order, count)``: put the images x[order[0]], x[order[1]], ... into lanes."""
    f = Function(code, "gather", "pppi")
    kept, x, order, count = f.arguments
    (channels, height, width), lanes = plan.shape, code.lanes
    begins = [_image(f, order, count, lane) * (channels * height * width) for lane in range(lanes)]
    with f.loop(0, channels) as c, f.loop(0, height) as y:
        at = (c * height + y) * width
        if width < lanes:
            with f.loop(0, width) as column:
                for lane, begin in enumerate(begins):
                    f.put_number(f.number(x, begin + at + column), kept, to.inside(c, y, column) + lane)
        else:  # squares of W images and W pixels; the last two may overlap
            for column in sorted({*range(0, width - lanes, lanes), width - lanes}):
                square = f.turned([f.vector(x, begin + at + column, loose=True) for begin in begins])
                for j, vector in enumerate(square):
                    f.put_vector(vector, kept, to.inside(c, y, column + j))
    return f.end()


def rows(code: Code, buffer: Buffer, name: str, out: bool) -> Function:
    """Write ``name(arena, table, count)``: copy a buffer's lanes to rows of a table (count, numbers), or back."""
    f = Function(code, name, "ppi")
    arena, table, count = f.arguments
    length = buffer.size // buffer.lanes
    with f.loop(0, count if out else code.lanes) as lane:
        row = (lane if out else f.least(lane, count - 1)) * length
        with f.loop(0, length) as i:
            place = i * buffer.lanes + buffer.start + lane
            if out:
                f.put_number(f.number(arena, place), table, row + i)
            else:
                value = f.number(table, row + i)
                real = f.b.icmp_signed("<", f.whole(lane), count.value)
                f.put_number(f.b.select(real, value, f.constant(0.0, code.number)), arena, place)
    return f.end()


def softmax(code: Code, classes: int, logits: Buffer, slopes: Buffer) -> Function:
    """Write ``softmax(kept, passing, y, order, count, scale)``: derivatives of the cross-entropy by the logits.

    `scale` is 1 over the images of the batch; lanes that are left over get 0.
    """
    f = Function(code, "softmax", "ppppir")
    kept, passing, y, order, count, scale = f.arguments
    whole = ir.VectorType(I64, code.lanes)
    labels, numbers = Sum(f, f.constant(0, whole)), [ir.Constant(I64, i) for i in range(code.lanes)]
    for lane in range(code.lanes):
        label = f.integer(y, _image(f, order, count, lane)).value
        labels.set(f.b.insert_element(labels.get(), label, ir.Constant(I32, lane)))
    top = Sum(f, f.vector(kept, logits.at(0)))
    with f.loop(0, classes) as k:
        value = f.vector(kept, logits.at(k))
        top.set(f.b.select(f.b.fcmp_unordered(">", value, top.get()), value, top.get()))
    total = Sum(f, f.constant(0.0))
    with f.loop(0, classes) as k:
        power = f.b.fsub(f.vector(kept, logits.at(k)), top.get())
        value = f.b.call(code.intrinsic("llvm.exp", code.vector, 1), [power])
        f.put_vector(value, passing, slopes.at(k))
        total.add(value)
    last = ir.Constant(whole, [ir.Constant(I64, 0)] * code.lanes)
    for lane in range(code.lanes):
        last = f.b.insert_element(last, count.value, ir.Constant(I32, lane))
    real = f.b.icmp_signed("<", ir.Constant(whole, numbers), last)
    zero, factor = f.constant(0.0), f.b.fdiv(f.all(scale), total.get())
    with f.loop(0, classes) as k:
        here = f.constant(0, whole)
        for lane in range(code.lanes):
            here = f.b.insert_element(here, f.whole(k), ir.Constant(I32, lane))
        hit = f.b.select(f.b.icmp_signed("==", here, labels.get()), f.all(scale), zero)
        slope = f.b.fsub(f.b.fmul(f.vector(passing, slopes.at(k)), factor), hit)
        f.put_vector(f.b.select(real, slope, zero), passing, slopes.at(k))
    return f.end()


# ---------------------------------------------------------------------- stochastic gradient descent
def update(code: Code, size: int) -> Function:
    """Write ``update(w, m, g, first, lr, momentum, decay, nesterov)``: as ``torch.optim.SGD``; g becomes 0."""
    f = Function(code, "update", "pppirrri")
    w, m, g, first, lr, momentum, decay, nesterov = f.arguments
    fresh, ahead = (f.b.icmp_signed("!=", a.value, ir.Constant(I64, 0)) for a in (first, nesterov))
    moving = f.b.fcmp_ordered("!=", momentum, f.constant(0.0, code.number))
    whole = size // code.lanes * code.lanes
    for begin, end, step in ((0, whole, code.lanes), (whole, size, 1)):  # vectors, then what is left
        if begin == end:
            continue
        kind, spread_out = (code.vector, f.all) if step > 1 else (code.number, lambda number: number)
        down, keep, shrink = (spread_out(v) for v in (f.b.fneg(lr), momentum, decay))
        branches = [f.made.append_basic_block() for _ in range(2)]
        after = f.made.append_basic_block()
        f.b.cbranch(moving, *branches)
        for branch, with_momentum in zip(branches, (True, False), strict=True):
            f.b.position_at_end(branch)
            with f.loop(begin, end, step) as i:
                weight = f.vector(w, i, kind, loose=True)
                slope = f.fma(shrink, weight, f.vector(g, i, kind, loose=True))
                if with_momentum:
                    speed = f.b.select(fresh, slope, f.fma(keep, f.vector(m, i, kind, loose=True), slope))
                    f.put_vector(speed, m, i, loose=True)
                    slope = f.b.select(ahead, f.fma(keep, speed, slope), speed)
                f.put_vector(f.fma(down, slope, weight), w, i, loose=True)
                f.put_vector(f.constant(0.0, kind), g, i, loose=True)
            f.b.branch(after)
        f.b.position_at_end(after)
    return f.end()


def pull(code: Code) -> Function:
    """Write ``pull(w, g, anchor, begin, end, strength)``: ``g += strength (w - anchor)`` from begin to end."""
    f = Function(code, "pull", "pppiir")
    w, g, anchor, begin, end, strength = f.arguments
    with f.when(begin, "<", end), f.loop(begin, end) as i:
        gap = f.b.fsub(f.number(w, i), f.number(anchor, i))
        f.put_number(f.fma(strength, gap, f.number(g, i)), g, i)
    return f.end()


def shift(code: Code, size: int) -> Function:
    """Write ``shift(g, by)``: ``g += by``."""
    f = Function(code, "shift", "pp")
    g, by = f.arguments
    with f.loop(0, size) as i:
        f.put_number(f.b.fadd(f.number(g, i), f.number(by, i)), g, i)
    return f.end()


# ---------------------------------------------------------------------- the whole network
def layers(code: Code, plan: Plan, places: Places) -> tuple[Function, Function, Function]:
    """Write ``forward(w, g, kept, passing)``, and likewise ``backward`` to the weights and ``towards`` the images.

    The images lie in the arena.
    """
    ahead: list[Function] = []
    back: list[Function] = []
    to_images: list[Function] = []
    values, slopes = places.values, places.slopes

    def add(to: list[Function], kernel: Callable, *arguments) -> None:
        f = Kernel(code, f"{kernel.__name__}_{len(ahead)}")
        kernel(f, *arguments)
        f.made.attributes.add("noinline")
        to.append(f.end())

    for i, layer in enumerate(plan.layers):
        source, target, slope, to = values[i], values[i + 1], slopes[i + 1], slopes[i]
        winners, full = places.winners[i], places.full[i]
        down: list[Function] = []  # one layer's kernels on the way back: through ReLU, by its weights and inputs
        if isinstance(layer, Conv):
            add(down, spread, layer, target, winners, slope, full)
            add(down, convolve_weights, layer, source, full)
            add(down, convolve_inputs, layer, full, to)
            add(ahead, convolve, layer, source, target, winners)
        else:
            add(down, rectify, layer, target, slope)
            add(down, dense_weights, layer, source, slope, places.turned)
            add(down, dense_inputs, layer, slope, to)
            add(ahead, dense, layer, source, target)
        through, by_weights, by_inputs = down
        back = [through, by_weights, *([by_inputs] if i else []), *back]
        to_images = [through, by_inputs, *to_images]
    found = []
    for name, parts in (("forward", ahead), ("backward", back), ("towards", to_images)):
        f = Kernel(code, name)
        for part in parts:
            f.call(part, *f.arguments)
        found.append(f.end())
    return found[0], found[1], found[2]


def write(code: Code, plan: Plan, places: Places) -> None:
    """Write all that is called from outside; :mod:`cflkit.engine.fast.compiled.library` says what each does."""
    forward, backward, towards = layers(code, plan, places)
    read = gather(code, plan, places.values[0])
    give = rows(code, places.values[-1], "give", out=True)
    take = rows(code, places.slopes[-1], "take", out=False)
    show = rows(code, places.slopes[0], "show", out=True)

    f = Function(code, "look", "pppippip")
    w, g, kept, apart, x, order, n, out = f.arguments
    with f.loop(0, n, code.lanes) as at:
        count, mine = f.least(n - at, code.lanes), f.at(kept, at * apart)
        f.call(read, mine, x, f.at(order, at, I64), count)
        f.call(forward, w, g, mine, mine)
        f.call(give, mine, f.at(out, at * plan.outputs), count)
    f.end()

    f = Function(code, "back", "pppippi")
    w, g, kept, apart, passing, table, n = f.arguments
    with f.loop(0, n, code.lanes) as at:
        f.call(take, passing, f.at(table, at * plan.outputs), f.least(n - at, code.lanes))
        f.call(backward, w, g, f.at(kept, at * apart), passing)
    f.end()

    f = Function(code, "pixels", "pppippip")
    w, g, kept, apart, passing, table, n, out = f.arguments
    pixels = plan.shape[0] * plan.shape[1] * plan.shape[2]
    with f.loop(0, n, code.lanes) as at:
        count = f.least(n - at, code.lanes)
        f.call(take, passing, f.at(table, at * plan.outputs), count)
        f.call(towards, w, g, f.at(kept, at * apart), passing)
        f.call(show, passing, f.at(out, at * pixels), count)
    f.end()
    if not isinstance(plan.layers[-1], Dense):
        return

    differ = softmax(code, plan.outputs, places.values[-1], places.slopes[-1])
    slope = Function(code, "slope", "pppppppir")
    w, g, kept, passing, x, y, order, n, scale = slope.arguments
    with slope.loop(0, n, code.lanes) as at:
        count, mine = slope.least(n - at, code.lanes), slope.at(order, at, I64)
        slope.call(read, kept, x, mine, count)
        slope.call(forward, w, g, kept, passing)
        slope.call(differ, kept, passing, y, mine, count, scale)
        slope.call(backward, w, g, kept, passing)
    slope.end()

    step, to_anchor, aside = update(code, plan.size), pull(code), shift(code, plan.size)
    f = Function(code, "train", "ppppppppp" + "i" + "rrri" + "ippp" + "ip")
    w, m, g, kept, passing, x, y, order, bounds = f.arguments[:9]
    steps, lr, momentum, decay, nesterov, pulls, anchors, spans, strengths, shifted, by = f.arguments[9:]
    with f.loop(0, steps) as s:
        begin, end = f.integer(bounds, s), f.integer(bounds, s + 1)
        count = f.b.sitofp((end - begin).value, code.number)
        scale = f.b.fdiv(f.constant(1.0, code.number), count)
        f.call(slope, w, g, kept, passing, x, y, f.at(order, begin, I64), end - begin, scale)
        with f.when(pulls, ">", 0), f.loop(0, pulls) as p:
            anchor = f.b.inttoptr(f.integer(anchors, p).value, POINTER)
            begin, end = f.integer(spans, p * 2), f.integer(spans, p * 2 + 1)
            f.call(to_anchor, w, g, anchor, begin, end, f.number(strengths, p))
        with f.when(shifted, "!=", 0):
            f.call(aside, g, by)
        f.call(step, w, m, g, Int(f, f.b.zext(f.b.icmp_signed("==", f.whole(s), f.whole(0)), I64)), lr, momentum,
               decay, nesterov)  # fmt: skip
    f.end()
