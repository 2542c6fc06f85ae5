"""LoRA adapters of PEFT, on a transformers model and on a plain one."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torchlens as tl
from tests.programs.reading import floats, op_labels
from tests.wrapped.agreement import agreeing
from tests.wrapped.packages import package
from tests.zoo.torchvision_ops import import_torchvision

try:
    import_torchvision()  # transformers imports it where it is installed
except ImportError:
    pass
transformers = package("transformers")
peft = package("peft")

IDS = torch.tensor([[3, 1, 4, 1, 5]])
MODES = [pytest.param(True, id="train"), pytest.param(False, id="eval")]


def gpt2_with_adapters(train: bool) -> nn.Module:
    config = transformers.GPT2Config(
        n_layer=2, n_head=2, n_embd=16, vocab_size=30, n_positions=16, bos_token_id=0, eos_token_id=0
    )
    adapters = peft.LoraConfig(
        r=2, target_modules=["c_attn"], lora_dropout=0.1, init_lora_weights=False, fan_in_fan_out=True
    )
    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        return peft.get_peft_model(transformers.GPT2LMHeadModel(config), adapters).train(train)


gpt2_with_adapters(train=False)  # transformers' first model of a process gives nn.Module a method


@pytest.mark.parametrize("train", MODES)
def test_a_transformers_model(train: bool) -> None:
    first, second = agreeing(lambda: gpt2_with_adapters(train), input_kwargs={"input_ids": IDS})
    assert op_labels(first) == op_labels(second)
    for layer in range(2):
        adapted = f"base_model.model.transformer.h.{layer}.attn.c_attn"
        calls = [f"{adapted}.{part}:1" for part in ("base_layer", "lora_A.default", "lora_B.default")]
        assert set(calls) <= {call.label for call in first.module_calls}
        (down,) = first.modules[f"{adapted}.lora_A.default"].ops
        assert [param.address for param in down.params] == [f"{adapted}.lora_A.default.weight"]
        assert first.params[f"{adapted}.base_layer.weight"].trainable is False
        assert first.params[f"{adapted}.lora_B.default.weight"].trainable is True


class MLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(4, 8), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(torch.relu(self.up(x)))


def mlp_with_adapter(**options: Any) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = peft.LoraConfig(r=2, target_modules=["up"], init_lora_weights=False, **options)
        return peft.get_peft_model(MLP(), config)


def test_a_model_of_one_s_own() -> None:
    (trace, _) = agreeing(lambda: mlp_with_adapter(modules_to_save=["down"]), floats(3, 4))
    names = {op.label: op.module.address for op in trace.ops if op.type == "linear"}
    assert names == {
        "linear_1:1": "base_model.model.up.base_layer",
        "linear_2:1": "base_model.model.up.lora_A.default",
        "linear_3:1": "base_model.model.up.lora_B.default",
        "linear_4:1": "base_model.model.down.modules_to_save.default",
    }


def test_an_adapter_that_is_off_or_merged_is_not_seen() -> None:
    model = mlp_with_adapter()
    with model.disable_adapter():
        assert op_labels(tl.trace(model, floats(3, 4))) == "linear_1:1 relu_1:1 linear_2:1"
    merged = tl.trace(model.merge_and_unload(), floats(3, 4))
    assert op_labels(merged) == "linear_1:1 relu_1:1 linear_2:1"
    assert [module.address for module in merged.modules] == ["", "up", "down"]
