"""Physical and virtual addresses, and allocators that keep books without a machine."""
