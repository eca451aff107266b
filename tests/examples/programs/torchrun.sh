set -eu
# Whatever a script does besides.
cd "$(dirname "$0")"
torchrun ddp_gang.py
