"""What is asked: the documents, as frozen pydantic models.

Pure. The models (`job`, `queue`, `resources`; `kinds` lists the documents) are the Kubernetes spelling, one type a field;
the flat spelling is sugar on top.
Reading goes text -> `located` (a tree with places) -> `flat` and `reader` (the model's data) -> pydantic -> `check`;
writing goes through `writer`. `document` is the door to both; `schema` and `crd` say the same to editors and to Kubernetes.
"""
