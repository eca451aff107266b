exec bash torchrun.sh
