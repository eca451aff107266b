"""One module per kind of model that a worker loads: `load(order)` returns the loaded model.

These modules run under the user's interpreter, with only the standard library, numpy and the framework, on Python 3.9 and newer.
`worker.Order` specifies what to load. A loaded model has `platform`, `inputs`, `outputs` and `predict`; `model` if it generates
or embeds.
"""
