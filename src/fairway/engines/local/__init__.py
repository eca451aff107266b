"""The local engine: tasks are processes of this machine, each under a small supervisor that outlives the daemon.

`fork_server.py` and `supervisor.py` import the standard library only: they run apart from the daemon and must stay small.
"""
