"""The scheduling algorithm: queue order, placement, reservations, backfill and preemption.

Pure. First in, first out with priorities. A blocked run gets a reservation, and runs behind it may start only where they do
not delay it.
"""
