"""A pytest plugin: nbval starts its kernels as ``cflkit.workbook.notebooks`` does."""

import nbval.kernel
from jupyter_client.manager import KernelManager

from cflkit.workbook.notebooks import sockets

nbval.kernel.KernelManager = lambda **settings: KernelManager(**sockets(), **settings)
