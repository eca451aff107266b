#!/usr/bin/env bash
# How XGBoost is started without a launcher: each worker has the address of the tracker and its place.
set -eu
export DMLC_TRACKER_URI=127.0.0.1 DMLC_TRACKER_PORT=$PORT DMLC_NUM_WORKER=2
for place in 0 1; do DMLC_TASK_ID=$place python xgb_train.py & done
for job in $(jobs -p); do wait "$job"; done
