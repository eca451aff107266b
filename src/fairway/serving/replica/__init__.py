"""One replica: a process that holds one model version and answers requests over HTTP.

    asgi        which path does what; bodies in, answers out
    protocols/  what is spoken: Open Inference Protocol v2, TF-Serving REST, OpenAI
    batching    requests that wait while the model runs are run together
    runtimes/   what runs the model: ONNX in this process, others in a worker under the user's interpreter (`worker.py`)

`python -m fairway.serving.replica --folder DIR --name mnist --version 7 --port 8001` starts it.
"""
