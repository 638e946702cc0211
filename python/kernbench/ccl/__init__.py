"""Collectives: queues between PEs, algorithms, a mock to test them without a machine."""
