"""What the fork server imports besides torch, because cases use it."""

import torch._dynamo  # noqa: F401 (functional collectives import it by their first call, each rank by itself)
import torch.distributed._functional_collectives  # noqa: F401
import torch.distributed.device_mesh  # noqa: F401
import torch.distributed.fsdp  # noqa: F401
import torch.distributed.tensor  # noqa: F401
import torch.distributed.tensor.parallel  # noqa: F401
import torch.nn.parallel  # noqa: F401
import torch.utils.data  # noqa: F401

from torch_tests.registry import cases

cases()
