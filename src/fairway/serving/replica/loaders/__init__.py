"""One module for each kind of model that a worker loads: `load(order)` gives the loaded model.

These run under the user's interpreter: standard library, numpy and the framework alone, Python 3.9 and newer. `worker.Order` says
what to load. A loaded model has `platform`, `inputs`, `outputs` and `predict`; `model` where it generates or embeds.
"""
