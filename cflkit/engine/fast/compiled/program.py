"""How a network's kernels become the few functions that are called from outside.

Images go into lanes and outputs come out. Between the two the layers' kernels are called one after the other, ahead
and back. Around it all runs stochastic gradient descent. :func:`write` lists what there is, and
:mod:`cflkit.engine.fast.compiled.library` says what each does.
"""

from __future__ import annotations  # LLVM's types are named in annotations; the book's pages do without the package

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from llvmlite import ir

from cflkit.engine.fast.compiled import channels, kernels, winograd
from cflkit.engine.fast.compiled.kernels import Buffer, Kernel
from cflkit.engine.fast.compiled.winograd import Planes
from cflkit.engine.fast.compiled.writing import I32, I64, POINTER, Code, Function, Int, Sum
from cflkit.engine.fast.plan import Conv, Dense, Plan

WIDEST = 64  # bytes of the widest vector; up to a quarter of its images go one by one where whole groups leave them


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
    """Write ``name(kept, passing, table, count)``: copy a buffer's lanes to rows of a table, or back."""
    f = Function(code, name, "pppi")
    kept, passing, table, count = f.arguments
    arena = kept if buffer.kept else passing
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
    """Write ``softmax(kept, passing, y, q, order, count, scale)``: derivatives of the cross-entropy by the logits.

    `scale` is 1 over the images of the batch, `q` the weight of each image; lanes that are left over get 0.
    """
    f = Function(code, "softmax", "pppppir")
    kept, passing, y, q, order, count, scale = f.arguments
    whole = ir.VectorType(I64, code.lanes)
    labels, numbers = Sum(f, f.constant(0, whole)), [ir.Constant(I64, i) for i in range(code.lanes)]
    shares = f.constant(0.0)
    for lane in range(code.lanes):
        image, place = _image(f, order, count, lane), ir.Constant(I32, lane)
        labels.set(f.b.insert_element(labels.get(), f.integer(y, image).value, place))
        shares = f.b.insert_element(shares, f.number(q, image), place)
    shares = f.b.fmul(shares, f.all(scale))
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
    zero, factor = f.constant(0.0), f.b.fdiv(shares, total.get())
    with f.loop(0, classes) as k:
        here = f.constant(0, whole)
        for lane in range(code.lanes):
            here = f.b.insert_element(here, f.whole(k), ir.Constant(I32, lane))
        hit = f.b.select(f.b.icmp_signed("==", here, labels.get()), shares, zero)
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


# ---------------------------------------------------------------------- a network's stages
@dataclass
class Stages:
    """What is done to a group of at most W images that lie in the arena.

    Attributes
    ----------
    pack_ahead, pack_back, pack, finish : Function
        ``(w, g, kept, passing)``: to be called before images go ahead, before they go back, before they go both
        ways; and when all are back.
    forward, backward, later, towards : Function
        ``(w, g, kept, passing, count)``: ahead; back to the weights, right after that or later; back to the images.
    read : Function
        ``(kept, x, order, count)``: put images into the arena.
    give, take, show : Function
        ``(kept, passing, table, count)``: outputs to a table, derivatives by them from one, those by images to one.
    begin, logits : tuple of Buffer
        The inputs and the derivatives by them; the outputs and those by them. If images are in the lanes there.
    """

    pack_ahead: Function
    pack_back: Function
    pack: Function
    finish: Function
    forward: Function
    backward: Function
    later: Function
    towards: Function
    read: Function | None
    give: Function
    take: Function
    show: Function | None
    begin: tuple[Buffer, Buffer] | None
    logits: tuple[Buffer, Buffer] | None


def _kernel(code: Code, kernel: Callable, i: int, *arguments) -> Function:
    """A kernel of layer `i` as a function of its own."""
    f = Kernel(code, f"{kernel.__name__}_{i}")
    kernel(f, *arguments)
    f.made.attributes.add("noinline")
    return f.end()


def _chain(code: Code, name: str, parts: Sequence[Function], kinds: str = "ppppi") -> Function:
    """A function ``(w, g, kept, passing, ...)`` that calls functions of these one after the other."""
    f = Function(code, name, kinds)
    for part in parts:
        f.call(part, *f.arguments[: len(part.arguments)])
    return f.end()


@dataclass
class Parts:
    """Functions ``(w, g, kept, passing)`` of one layer, or of several, in the order in which they are called.

    Attributes
    ----------
    ahead, back, towards : list of Function
        Ahead; back to the weights and, if the layer is not the first, to the inputs; back to the inputs alone.
    again : list of Function
        Before `back`, if others have gone ahead since.
    pack_ahead, pack_back, finish : list of Function
        Before images go ahead, before they go back, when all are back.
    """

    ahead: list[Function]
    back: list[Function]
    towards: list[Function]
    again: Sequence[Function] = ()
    pack_ahead: Sequence[Function] = ()
    pack_back: Sequence[Function] = ()
    finish: Sequence[Function] = ()


def joined(layers: list[Parts]) -> Parts:
    """Layers one after the other; on the way back the last one comes first."""
    def every(name: str, order: Sequence[Parts] = layers) -> list[Function]:
        return [part for layer in order for part in getattr(layer, name)]

    back = layers[::-1]
    return Parts(every("ahead"), every("back", back), every("towards", back), every("again"), every("pack_ahead"),
                 every("pack_back"), every("finish"))  # fmt: skip


def by_images(code: Code, plan: Plan, places: kernels.Places, planes: list[Planes | None],
              dense: Stages | None = None, behind: bool = False) -> Stages:  # fmt: skip
    """The stages of a network with images in the lanes.

    Either of all its layers, or of its convolutions and then the `dense` ones, or of those that come `behind`.
    """
    values, slopes = places.values, places.slopes
    layers = [_image_layer(code, plan.layers[i], i, places, planes[i], not i and not behind)
              for i in range(len(plan.layers))]  # fmt: skip
    parts = joined(layers)
    if dense:
        parts.ahead.append(dense.forward)
        parts.back.insert(0, dense.backward)
        parts.towards.insert(0, dense.towards)
    ways = {"forward": parts.ahead, "backward": parts.back, "later": [*parts.again, *parts.back],
            "towards": parts.towards}  # fmt: skip
    return Stages(
        *_packs(code, parts),
        *(_chain(code, f"{name}_by_images", each) for name, each in ways.items()),
        None if behind else gather(code, plan, values[0]),
        dense.give if dense else rows(code, values[-1], "give", out=True),
        dense.take if dense else rows(code, slopes[-1], "take", out=False),
        None if behind else rows(code, slopes[0], "show", out=True),
        (values[0], slopes[0]), dense.logits if dense else (values[-1], slopes[-1]),
    )  # fmt: skip


def _packs(code: Code, parts: Parts) -> list[Function]:
    both = [*parts.pack_ahead, *(each for each in parts.pack_back if each not in parts.pack_ahead)]
    packs = {"pack_ahead": parts.pack_ahead, "pack_back": parts.pack_back, "pack": both, "finish": parts.finish}
    return [_chain(code, name, each, "pppp") for name, each in packs.items()]


def _image_layer(code: Code, layer: Conv | Dense, i: int, places: kernels.Places, planes: Planes | None,
                 first: bool) -> Parts:  # fmt: skip
    """A layer with images in the lanes; of the `first` no derivatives by inputs are wanted in training."""
    source, target, winners = places.values[i], places.values[i + 1], places.winners[i]
    slope, to, full = places.slopes[i + 1], places.slopes[i], places.full[i]
    if planes is not None:
        def biases(f: Kernel, k, total: ir.Value) -> None:
            f.add_lanes(f.g, k + layer.bias, [total])

        return _in_planes(code, layer, i, planes, (source, target, winners, slope, to), biases, first)
    if isinstance(layer, Conv):
        ahead = _kernel(code, kernels.convolve, i, layer, source, target, winners)
        through = _kernel(code, kernels.spread, i, layer, target, winners, slope, full)
        by_weights = _kernel(code, kernels.convolve_weights, i, layer, source, full)
        by_inputs = _kernel(code, kernels.convolve_inputs, i, layer, full, to)
    else:
        ahead = _kernel(code, kernels.dense, i, layer, source, target)
        through = _kernel(code, kernels.rectify, i, layer, target, slope)
        by_weights = _kernel(code, kernels.dense_weights, i, layer, source, slope, places.turned)
        by_inputs = _kernel(code, kernels.dense_inputs, i, layer, slope, to)
    return Parts([ahead], [through, by_weights] + [by_inputs] * (not first), [through, by_inputs])


def _in_planes(code: Code, layer: Conv, i: int, planes: Planes, buffers: tuple, biases: Callable,
               first: bool) -> Parts:  # fmt: skip
    """A layer by Winograd's products. ``biases(f, filter, sum)`` adds to the derivatives by biases."""
    source, target, winners, slope, to = buffers
    source, target, slope, to = (planes.grid(buffer) for buffer in (source, target, slope, to))
    split = _kernel(code, winograd.split, i, layer, planes, source)
    ahead = _kernel(code, winograd.convolve, i, layer, planes, target, winners)
    through = _kernel(code, winograd.spread, i, layer, planes, target, winners, slope, biases)
    by_inputs = _kernel(code, winograd.convolve_inputs, i, layer, planes, to)
    back = [through, _kernel(code, winograd.convolve_weights, i, planes)] + [by_inputs] * (not first)
    pack_ahead = _kernel(code, planes.pack_ahead, i, layer)
    pack_back = _kernel(code, planes.pack_back, i, layer) if planes.last else pack_ahead
    finish = _kernel(code, planes.finish, i, layer)
    return Parts([split, ahead], back, [through, by_inputs], [split], [pack_ahead], [pack_back], [finish])


def by_channels(code: Code, plan: Plan, places: channels.Places, planes: list[Planes | None],
                dense: Stages | None) -> Stages:  # fmt: skip
    """The stages of a network whose convolutions go image by image; `dense` layers have images in the lanes."""
    parts = joined([_channel_layer(code, layer, i, places, planes[i]) for i, layer in enumerate(plan.convolutions)])
    values, slopes, apart, features = places.values, places.slopes, places.apart, plan.convolutions[-1].filters
    size, pixels = plan.shape[0], plan.shape[0] * plan.shape[1] * plan.shape[2]
    image_in = channels.ordered(code, values[0], size, "image_in", out=False)
    image_out = channels.ordered(code, slopes[0], size, "image_out", out=True)
    features_out = channels.ordered(code, values[-1], features, "features_out", out=True)
    features_in = channels.ordered(code, slopes[-1], features, "features_in", out=False)

    read = Function(code, "gather", "pppi")
    kept, x, order, count = read.arguments
    with read.loop(0, count) as n:
        read.call(image_in, read.at(kept, n * apart), read.at(x, read.integer(order, n) * pixels), 1)

    forward = Function(code, "forward", "ppppi")
    kept, count = forward.arguments[2], forward.arguments[4]
    _for_each(forward, parts.ahead, apart)
    if dense:
        begin = dense.begin[0].start
        with forward.loop(0, code.lanes) as lane:  # lanes that are left over hold the last image
            image = forward.at(kept, forward.least(lane, count - 1) * apart)
            forward.call(features_out, image, forward.at(kept, lane + begin), code.lanes)
        forward.call(dense.forward, *forward.arguments)
    ways = []
    for name, each in (("backward", parts.back), ("towards", parts.towards)):
        f = Function(code, name, "ppppi")
        kept, passing, count = f.arguments[2:]
        if dense:
            f.call(getattr(dense, name), *f.arguments)
            with f.loop(0, count) as n:
                table = f.at(passing, n + dense.begin[1].start)
                f.call(features_in, f.at(kept, n * apart), table, code.lanes)
        _for_each(f, each, apart)
        ways.append(f.end())
    back, towards = ways  # an image's planes are gone when the next one comes, so this is always later
    return Stages(
        *_packs(code, parts), forward.end(), back, back, towards, read.end(),
        dense.give if dense else _each_row(code, "give", features_out, apart, plan.outputs),
        dense.take if dense else _each_row(code, "take", features_in, apart, plan.outputs),
        _each_row(code, "show", image_out, apart, pixels), None, dense.logits if dense else None,
    )  # fmt: skip


def _channel_layer(code: Code, layer: Conv, i: int, places: channels.Places, planes: Planes | None) -> Parts:
    """A layer with channels in the lanes, for one image."""
    source, target, winners = places.values[i], places.values[i + 1], places.winners[i]
    slope, to, full, grown_biases = places.slopes[i + 1], places.slopes[i], places.full[i], places.grown_biases[i]
    add_biases = _kernel(code, channels.add_biases, i, layer, grown_biases)
    if planes is not None:
        parts = _in_planes(code, layer, i, planes, (source, target, winners, slope, to),
                           partial(channels.grow, grown_biases), not i)  # fmt: skip
        parts.back, parts.finish = [*parts.again, *parts.back], [*parts.finish, add_biases]
        return parts
    weights, turned, grown, biases = places.ahead[i], places.back[i], places.grown[i], places.biases[i]
    ahead = _kernel(code, channels.convolve, i, layer, source, target, winners, places.rows[i], weights, biases)
    through = _kernel(code, channels.spread, i, layer, target, winners, slope, full, grown_biases)
    by_weights = _kernel(code, channels.convolve_weights, i, layer, source, full, grown)
    by_inputs = _kernel(code, channels.convolve_inputs, i, layer, full, to, turned)
    return Parts(
        [ahead], [through, by_weights] + [by_inputs] * bool(i), [through, by_inputs],
        pack_ahead=[_kernel(code, channels.pack_ahead, i, layer, weights, biases)],
        pack_back=[_kernel(code, channels.pack_back, i, layer, turned)],
        finish=[_kernel(code, channels.add_grown, i, layer, grown), add_biases],
    )  # fmt: skip


def _for_each(f: Function, parts: list[Function], apart: int) -> None:
    """Call functions of one image for each of the images in the arena."""
    w, g, kept, passing, count = f.arguments
    with f.loop(0, count) as n:
        for part in parts:
            f.call(part, w, g, f.at(kept, n * apart), passing)


def _each_row(code: Code, name: str, copy: Function, apart: int, length: int) -> Function:
    """A function ``(kept, passing, table, count)`` that copies each image's row from or to a table."""
    f = Function(code, name, "pppi")
    kept, _, table, count = f.arguments
    with f.loop(0, count) as n:
        f.call(copy, f.at(kept, n * apart), f.at(table, n * length), 1)
    return f.end()


# ---------------------------------------------------------------------- the whole network
class Rooms:
    """Where everything of a plan lies.

    Attributes
    ----------
    most, few : kernels.Places or channels.Places
        For most images; for the few that whole groups leave over, if they go another way.
    planes : list of Planes or None
        Of each layer, for most images.
    kept, passing : int
        Numbers in each arena.
    """

    def __init__(self, plan: Plan, lanes: int):
        self.most = channels.Places(plan, lanes) if plan.wide else kernels.Places(plan, lanes)
        self.few, last = None, self.most
        if plan.near and not plan.wide and isinstance(plan.layers[-1], Dense):
            self.few = last = channels.Places(plan.front(), lanes, last.kept, last.passing)
        self.kept, self.passing = last.kept, last.passing
        self.planes: list[Planes | None] = []
        for i, layer in enumerate(plan.layers):
            tiled = isinstance(layer, Conv) and layer.tile > 1 and (i > 0 or not plan.wide)
            kind = winograd.ByChannels if plan.wide else winograd.ByImages
            self.planes.append(kind(layer, lanes, self.passing) if tiled else None)
            self.passing = self.planes[-1].end if tiled else self.passing


def write(code: Code, plan: Plan) -> None:
    """Write all that is called from outside; :mod:`cflkit.engine.fast.compiled.library` says what each does."""
    rooms = Rooms(plan, code.lanes)
    most, planes, convs = rooms.most, rooms.planes, len(plan.convolutions)
    dense = None
    if convs and isinstance(plan.layers[-1], Dense):
        behind = most.dense if plan.wide else most.behind(convs)
        dense = by_images(code, plan.rest(), behind, planes[convs:], behind=True)
    front = plan.front() if dense else plan
    stages = (by_channels if plan.wide else by_images)(code, front, most, planes, dense)
    left = by_channels(code, front, rooms.few, [None] * convs, dense) if rooms.few else None

    f = Function(code, "look", "pppipppip", outside=True)
    w, g, kept, apart, passing, x, order, n, out = f.arguments
    f.call(stages.pack_ahead, w, g, kept, passing)
    with f.loop(0, n, code.lanes) as at:
        count, mine = f.least(n - at, code.lanes), f.at(kept, at * apart)
        f.call(stages.read, mine, x, f.at(order, at, I64), count)
        f.call(stages.forward, w, g, mine, passing, count)
        f.call(stages.give, mine, passing, f.at(out, at * plan.outputs), count)
    f.end()

    f = Function(code, "back", "pppippi", outside=True)
    w, g, kept, apart, passing, table, n = f.arguments
    f.call(stages.pack_back, w, g, kept, passing)
    with f.loop(0, n, code.lanes) as at:
        count, mine = f.least(n - at, code.lanes), f.at(kept, at * apart)
        f.call(stages.take, mine, passing, f.at(table, at * plan.outputs), count)
        f.call(stages.later, w, g, mine, passing, count)
    f.call(stages.finish, w, g, kept, passing)
    f.end()

    f = Function(code, "pixels", "pppippip", outside=True)
    w, g, kept, apart, passing, table, n, out = f.arguments
    pixels = plan.shape[0] * plan.shape[1] * plan.shape[2]
    f.call(stages.pack_back, w, g, kept, passing)
    with f.loop(0, n, code.lanes) as at:
        count, mine = f.least(n - at, code.lanes), f.at(kept, at * apart)
        f.call(stages.take, mine, passing, f.at(table, at * plan.outputs), count)
        f.call(stages.towards, w, g, mine, passing, count)
        f.call(stages.show, mine, passing, f.at(out, at * pixels), count)
    f.call(stages.finish, w, g, kept, passing)  # what was summed up on the way is nobody's
    f.end()
    if isinstance(plan.layers[-1], Dense):
        _training(code, plan, stages, left)


def _training(code: Code, plan: Plan, stages: Stages, left: Stages | None) -> None:
    """Write what needs logits: the gradient of a batch, and steps of gradient descent."""
    differ = softmax(code, plan.outputs, *stages.logits)

    def groups(name: str, stages: Stages) -> Function:
        """Write ``name(w, g, kept, passing, x, y, q, order, begin, end, scale)``: add these images' gradient."""
        f = Function(code, name, "ppppppppiir")
        w, g, kept, passing, x, y, q, order, begin, end, scale = f.arguments
        f.call(stages.pack, w, g, kept, passing)
        with f.loop(begin, end, code.lanes) as at:
            count, mine = f.least(end - at, code.lanes), f.at(order, at, I64)
            f.call(stages.read, kept, x, mine, count)
            f.call(stages.forward, w, g, kept, passing, count)
            f.call(differ, kept, passing, y, q, mine, count, scale)
            f.call(stages.backward, w, g, kept, passing, count)
        f.call(stages.finish, w, g, kept, passing)
        return f.end()

    slope = Function(code, "slope", "ppppppppir", outside=True)
    *given, n, scale = slope.arguments
    most, apart = groups("groups", stages), left and groups("few", left)
    if apart is None:
        slope.call(most, *given, 0, n, scale)
    else:
        # the same images on every processor, so that sums have one order
        over = Int(slope, slope.b.and_(n.value, ir.Constant(I64, WIDEST // code.size - 1)))
        few = slope.b.icmp_signed("<=", over.value, ir.Constant(I64, WIDEST // code.size // 4))
        whole = n - Int(slope, slope.b.select(few, over.value, ir.Constant(I64, 0)))
        with slope.when(whole, ">", 0):
            slope.call(most, *given, 0, whole, scale)
        with slope.when(whole, "<", n):
            slope.call(apart, *given, whole, n, scale)
    slope.end()

    step, to_anchor, aside = update(code, plan.size), pull(code), shift(code, plan.size)
    f = Function(code, "train", "pppppppppp" + "i" + "rrri" + "ippp" + "ip", outside=True)
    w, m, g, kept, passing, x, y, q, order, bounds = f.arguments[:10]
    steps, lr, momentum, decay, nesterov, pulls, anchors, spans, strengths, shifted, by = f.arguments[10:]
    with f.loop(0, steps) as s:
        begin, end = f.integer(bounds, s), f.integer(bounds, s + 1)
        count = f.b.sitofp((end - begin).value, code.number)
        scale = f.b.fdiv(f.constant(1.0, code.number), count)
        f.call(slope, w, g, kept, passing, x, y, q, f.at(order, begin, I64), end - begin, scale)
        with f.when(pulls, ">", 0), f.loop(0, pulls) as p:
            anchor = f.b.inttoptr(f.integer(anchors, p).value, POINTER)
            begin, end = f.integer(spans, p * 2), f.integer(spans, p * 2 + 1)
            f.call(to_anchor, w, g, anchor, begin, end, f.number(strengths, p))
        with f.when(shifted, "!=", 0):
            f.call(aside, g, by)
        f.call(step, w, m, g, Int(f, f.b.zext(f.b.icmp_signed("==", f.whole(s), f.whole(0)), I64)), lr, momentum,
               decay, nesterov)  # fmt: skip
    f.end()
