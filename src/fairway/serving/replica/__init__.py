"""One replica: a process that holds one model version and answers requests over HTTP.

    asgi        routes requests to their handlers
    protocols/  the protocols: Open Inference Protocol v2, TF-Serving REST, OpenAI
    batching    combines requests that wait while the model runs
    runtimes/   what runs the model: ONNX in this process, others in a worker under the user's interpreter (`worker.py`)

`python -m fairway.serving.replica --folder DIR --name mnist --version 7 --port 8001` starts it.
"""
