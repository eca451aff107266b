"""What is asked: the documents, as frozen pydantic models.

Pure. The models are the Kubernetes spelling (one type a field); the flat spelling is sugar on top.
"""
