"""Spec documents (what a user requests) as frozen pydantic models.

Pure. The models (`job`, `queue`, `service`, `resources`; `kinds` lists the documents) use the Kubernetes spelling: one type per
field. The flat spelling is syntactic sugar on top.

Reading goes text -> `located` (a tree with positions) -> `flat` and `reader` (the model's data) -> pydantic -> `check`; writing
goes through `writer`. `document` is the entry point for both. `schema` and `crd` generate schemas for editors and for Kubernetes.
"""
