"""A pytest plugin: nbval starts its kernels as ``cflkit.workbook.chapters.notebooks`` does."""

import contextlib

import nbval.kernel
from jupyter_client.manager import KernelManager

from cflkit.workbook.chapters.notebooks import environment, sockets

nbval.kernel.KernelManager = lambda **settings: KernelManager(**sockets(), **settings)


def pytest_configure(config):
    """Keep the user's settings out of all kernels until the end."""
    stack = contextlib.ExitStack()
    stack.enter_context(environment())
    config.add_cleanup(stack.close)
