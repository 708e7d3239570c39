"""A pytest plugin: nbval starts its kernels as ``cflkit.notebooks`` does."""

import nbval.kernel
from jupyter_client.manager import KernelManager

from cflkit.notebooks import sockets

nbval.kernel.KernelManager = lambda **settings: KernelManager(**sockets(), **settings)
