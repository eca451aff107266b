"""Verbs for everything else: registry, queues, cluster, this machine."""
