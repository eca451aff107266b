"""Lightning Fabric: it starts its ranks itself when no launcher has started them."""

import os

import lightning
import torch

fabric = lightning.Fabric(
    accelerator="cpu", devices=int(os.environ.get("DEVICES", "1")), num_nodes=int(os.environ.get("NODES", "1"))
)
fabric.launch()
total = fabric.all_reduce(torch.tensor([fabric.global_rank + 1.0]), reduce_op="sum")
print(f"rank {fabric.global_rank} of {fabric.world_size} has {float(total):.1f}", flush=True)
if torch.distributed.is_initialized():
    torch.distributed.barrier()  # No rank ends while another still communicates with it.
    torch.distributed.destroy_process_group()
