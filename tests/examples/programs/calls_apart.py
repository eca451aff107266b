"""Calls torchrun from a script that Fairway does not parse, with flags by which no two calls join."""

import subprocess
import sys

sys.exit(subprocess.call(["torchrun", "--standalone", "--nnodes", "1", "ddp_gang.py"]))
