"""Run llama.cpp's HTTP server on the port that Fairway assigned, until SIGTERM or SIGINT."""

import os
import signal

import counting
import xllamacpp

ENDS = {signal.SIGTERM, signal.SIGINT}
signal.pthread_sigmask(signal.SIG_BLOCK, ENDS)  # before the server starts threads, so that none of them receives the signals

params = xllamacpp.CommonParams()
params.model.path = os.environ.get("MODEL") or counting.write("counting.gguf")
params.model_alias = {"counter"}
params.n_ctx = 16384
params.n_parallel = 2
params.cpuparams.n_threads = 1
params.hostnames = ["127.0.0.1"]
params.port = int(os.environ["FAIRWAY_PORT"])

server = xllamacpp.Server(params)
print(f"listening at {server.listening_address}", flush=True)
signal.sigwait(ENDS)
