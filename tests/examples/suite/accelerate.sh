#!/usr/bin/env bash
set -eu
accelerate launch --cpu accelerated.py
