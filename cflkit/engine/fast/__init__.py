"""The same training, faster: exact algebra and kernels that a method never learns about."""
