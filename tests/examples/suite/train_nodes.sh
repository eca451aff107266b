#!/usr/bin/env bash
set -eu
python -m torch.distributed.run --nproc-per-node 2 ddp.py
