"""How well policies place tasks, on recorded nodes and pods: filling a cluster, and arrivals with departures."""
