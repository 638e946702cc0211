"""The language of kernels, without an engine."""
