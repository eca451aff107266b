"""Serving: the process inside a replica, and the routers in front of them. Does I/O; decides nothing about releases or scale.

What to route where is a value (`fairway.state.route`) made by `fairway.plan`;
what was measured is one too (`fairway.state.load`).
"""
