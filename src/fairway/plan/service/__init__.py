"""Planning of services: the number of replicas, their revisions, and the routes for requests. Pure.

The control loop calls only `plan.advance`; `commands` holds the user's commands. One total number of replicas is decided
(`autoscale`) and then split between revisions (`split`), so that scaling and releases never write the same value.
"""
