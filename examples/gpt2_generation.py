"""GPT-2 of transformers writes five tokens: one block captures all forwards and the code between them.

Needs transformers (`pip install ".[zoo]"` in a clone). The model is small and random: nothing is downloaded.
"""

import torch

import torchlens as tl

try:
    import torchvision  # noqa: F401  transformers imports it where it is installed
except ImportError:
    pass
except RuntimeError:  # a torchvision built for GPUs beside a torch for CPUs: these two operators are missing
    for name in ("nms", "qnms"):
        torch.library.define(
            f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
        )

from transformers import GPT2Config, GPT2LMHeadModel

STEPS = 5


def main() -> None:
    torch.manual_seed(0)
    config = GPT2Config(n_layer=3, n_head=2, n_embd=32, vocab_size=100, bos_token_id=0, eos_token_id=0)
    model = GPT2LMHeadModel(config).eval()
    ids = torch.tensor([[1, 2, 3, 4]])

    with tl.capture(model) as trace:
        for _ in range(STEPS):
            logits = model(ids).logits
            chosen = logits[:, -1:].argmax(dim=-1)
            ids = torch.cat([ids, chosen], dim=-1)
    print(trace.summary())

    # Every op of the model is one layer with a pass for each step, and so is the code of the loop.
    head = trace.modules["lm_head"].layers[0]
    print(f"\n{head.layer_label} has {head.num_passes} passes, of shapes {[op.shape for op in head.ops]}")
    chosen = next(layer for layer in trace.layers if layer.func_name == "argmax")
    print(f"{chosen.layer_label} chose the tokens {[op.out.item() for op in chosen.ops]}")

    # The growing sequence ties the steps together: what one step chose is an input of the next.
    second = trace.module_calls[":2"].inputs[0]
    print(f"the second call read {second.label}, made of {' and '.join(op.label for op in second.parents)}")

    # The output head and the token embedding share one parameter, which has both addresses.
    weight = head.params[0]
    print(f"{' = '.join(weight.addresses)}, used by {len(weight.ops)} ops")


if __name__ == "__main__":
    main()
