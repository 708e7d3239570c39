"""Local SGD of many small networks on a GPU, a client to a program: all local steps without leaving the kernel.

:mod:`cflkit.engine.fast.fused.programs` holds the kernels, in Triton; :mod:`cflkit.engine.fast.fused.trainer` says
when they run and what they are given.
"""
