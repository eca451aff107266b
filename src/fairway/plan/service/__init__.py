"""What a service does next: how many replicas, of which revision, and where requests go. Pure.

`plan.advance` is the one door for the loop, `commands` holds the verbs. One number of replicas is decided (`autoscale`) and
then split between revisions (`split`), so that scaling and releasing never write the same thing.
"""
