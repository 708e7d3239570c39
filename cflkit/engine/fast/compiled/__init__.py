"""Small convolutional networks, compiled for the processor at hand.

PyTorch trains a LeNet at a tenth of what a processor can do: its images are small, so the time goes into calls,
copies and pooling. Here the whole training of a client is one call of machine code that is written for its network
by Python and compiled by LLVM, from the package ``llvmlite``. Without that package PyTorch trains.

- :mod:`.plan`: what a network is made of;
- :mod:`.writing`, :mod:`.kernels`, :mod:`.channels`, :mod:`.winograd`, :mod:`.program`: how the code is written;
- :mod:`.library`: how it is compiled, kept and called;
- :mod:`.trainer`: when it runs.
"""

from cflkit.engine.fast.compiled.library import Kernels, missing
from cflkit.engine.fast.compiled.trainer import Compiled, front_for, look

__all__ = ["Compiled", "Kernels", "front_for", "look", "missing"]
