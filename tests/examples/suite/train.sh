#!/usr/bin/env bash
set -eu
torchrun ddp.py
