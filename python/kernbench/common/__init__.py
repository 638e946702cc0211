"""What kernels, the engine and the host share."""
