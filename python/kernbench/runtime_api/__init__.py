"""The host's side: contexts, tensors, launches, devices, ranks."""
