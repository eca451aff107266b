#!/usr/bin/env bash
set -eu
mpirun --oversubscribe -n 2 python mpi_sum.py
