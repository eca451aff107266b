#!/usr/bin/env bash
# How TensorFlow is started without a launcher: each worker has TF_CONFIG.
set -eu
cluster="{\"worker\": [\"127.0.0.1:$PORT\", \"127.0.0.1:$PORT_TOO\"]}"
for place in 0 1; do
  TF_CONFIG="{\"cluster\": $cluster, \"task\": {\"type\": \"worker\", \"index\": $place}}" python keras_multi.py &
done
for job in $(jobs -p); do wait "$job"; done
