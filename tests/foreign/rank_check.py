"""Takes RANK in the environment for a sign that torchrun started it, as nanoGPT does."""

import os

distributed = int(os.environ.get("RANK", -1)) != -1
if distributed:
    from torch.distributed import destroy_process_group, init_process_group

    init_process_group(backend="gloo")
    destroy_process_group()
print("together" if distributed else "alone", os.environ.get("WORLD_SIZE"))
