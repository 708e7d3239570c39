"""Messages between the grader and the process of a submission: plain values and tensors, never pickles.

A pickle from a submission could run code in the grader. A message is JSON of bounded length instead, with tensors
as bytes, dtype and shape. Whatever else arrives is a ValueError, in :func:`read` as in :func:`unpack`.
"""

import base64
import json
import math
import struct
from collections.abc import Callable

import numpy as np
import torch

LARGEST = 1 << 26  # bytes of a message
DTYPES = {str(d).removeprefix("torch."): d for d in
          (torch.float64, torch.float32, torch.int64, torch.int32, torch.uint8, torch.bool)}  # fmt: skip


def pack(value, functions: list[Callable] | None = None):
    """Return what JSON can hold of `value`; functions, where allowed, are left in `functions` by number."""
    if isinstance(value, np.ndarray):
        value = torch.as_tensor(value)
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().contiguous()
        name = str(value.dtype).removeprefix("torch.")
        if name in DTYPES:
            return {"tensor": [name, list(value.shape), base64.b64encode(value.numpy().tobytes()).decode()]}
    if isinstance(value, list | tuple):
        return [pack(item, functions) for item in value]
    if isinstance(value, dict):
        return {"dict": [[pack(key), pack(item, functions)] for key, item in value.items()]}
    if functions is not None and callable(value):
        functions.append(value)
        return {"function": len(functions) - 1}
    raise TypeError(f"a value of type {type(value).__name__} cannot be handed over")


def unpack(value, proxy: Callable[[int], Callable] | None = None):
    """Undo :func:`pack`; ``proxy(number)`` stands for a function of the other side. ValueError if malformed."""
    try:
        return _unpack(value, proxy)
    except (KeyError, TypeError, AttributeError, OverflowError, RuntimeError) as error:  # and RecursionError
        raise ValueError(f"no value: {type(error).__name__}") from None


def _unpack(value, proxy):
    if isinstance(value, list):
        return [_unpack(item, proxy) for item in value]
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "tensor":
        name, shape, data = content
        raw = base64.b64decode(data)
        dtype = DTYPES[name]
        if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != len(raw):
            raise ValueError("a tensor whose bytes do not fit its shape")
        flat = torch.frombuffer(bytearray(raw), dtype=dtype) if raw else torch.zeros(0, dtype=dtype)
        return flat.reshape(shape)
    if kind == "dict":
        if not all(isinstance(key, str) for key, _ in content):  # numbers could be chosen to have one hash
            raise ValueError("a key that is no text")
        return {key: _unpack(item, proxy) for key, item in content}
    if kind == "function" and proxy is not None:
        return proxy(content)
    raise ValueError(f"no value: {kind}")


def frame(message: dict) -> bytes:
    """Return a message as it travels: its length in 4 bytes, then JSON."""
    body = json.dumps(message).encode()
    if len(body) > LARGEST:
        raise ValueError(f"a message of {len(body)} bytes is longer than {LARGEST}")
    return struct.pack("<I", len(body)) + body


def read(take: Callable[[int], bytes]) -> dict | None:
    """Read one message with ``take(n)``, which returns exactly n bytes, or fewer at the end; None at the end."""
    head = take(4)
    if len(head) < 4:
        return None
    (length,) = struct.unpack("<I", head)
    if length > LARGEST:
        raise ValueError(f"a message of {length} bytes is longer than {LARGEST}")
    body = take(length)
    if len(body) < length:
        return None
    try:
        message = json.loads(body)
    except RecursionError:
        raise ValueError("a message that is nested too deeply") from None
    if not isinstance(message, dict):
        raise ValueError("a message that is no object")
    return message
