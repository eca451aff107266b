"""Baseline of the replica: a bare ASGI handler that calls onnxruntime inline. Not a benchmark by itself.

It implements as little of the Open Inference Protocol as one model needs, checks nothing, and does not batch.
"""

from __future__ import annotations

import os

import msgspec
import numpy as np
import onnxruntime

options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
options.inter_op_num_threads = 1
session = onnxruntime.InferenceSession(os.environ["BARE_MODEL"], options, providers=["CPUExecutionProvider"])


async def app(scope, receive, send):
    """Respond to one request."""
    length = None
    for name, value in scope["headers"]:
        if name == b"inference-header-content-length":
            length = int(value)
    message = await receive()
    body = message["body"]
    while message.get("more_body"):
        message = await receive()
        body += message["body"]
    if length is None:
        tensor = msgspec.json.decode(body)["inputs"][0]
        array = np.array(tensor["data"], np.float32).reshape(tensor["shape"])
    else:
        tensor = msgspec.json.decode(body[:length])["inputs"][0]
        array = np.frombuffer(body, np.float32, offset=length).reshape(tensor["shape"])
    (output,) = session.run(["y"], {"x": array})
    told = {"name": "y", "datatype": "FP32", "shape": output.shape}
    headers = [(b"content-type", b"application/json")]
    if length is None:
        told["data"] = output.ravel().tolist()
        answer = msgspec.json.encode({"model_name": "bare", "outputs": [told]})
    else:
        raw = output.tobytes()
        told["parameters"] = {"binary_data_size": len(raw)}
        head = msgspec.json.encode({"model_name": "bare", "outputs": [told]})
        headers = [(b"content-type", b"application/octet-stream"), (b"inference-header-content-length", b"%d" % len(head))]
        answer = head + raw
    headers.append((b"content-length", b"%d" % len(answer)))
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})
