#!/usr/bin/env bash
# How JAX is started without a launcher: each process gets the address, the count and its place.
set -eu
export ADDRESS=127.0.0.1:$PORT COUNT=$1
for ((place = 0; place < $1; place++)); do PLACE=$place python jax_sum.py & done
for job in $(jobs -p); do wait "$job"; done
