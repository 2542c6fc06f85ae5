"""Torch's fused attention kernels are chosen during a capture exactly as without one."""

import contextlib
import functools
import sys
import threading

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.overrides import TorchFunctionMode

from torchlens._capture.fused import KERNELS, FusedForwards
from torchlens._capture.python_calls import PythonCalls


class Recording(TorchFunctionMode):
    """The least of a capture: enters Python-written functions and keeps fused kernels."""

    def __init__(self):
        self.python_calls = PythonCalls()
        self.fused = FusedForwards()
        self.innermost = None
        self.names = []
        self.notes = []
        self.prepared = []
        self.bypassed = set()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        caller = sys._getframe(1)
        clone = self.python_calls.find(func, types, args, kwargs, caller, self.innermost)
        if clone is None:
            self.names.append(func.__name__)
            self.bypassed.add(self.fused.bypassed(caller))
            return func(*args, **(kwargs or {}))
        outer, self.innermost = self.innermost, (func, args, kwargs)
        try:
            torch._C._push_on_torch_function_stack(self)
            return clone(*args, **(kwargs or {}))
        finally:
            torch._C._pop_torch_function_stack()
            self.innermost = outer

    def before_module(self, module, args):
        if self.fused.prepare(module, sys._getframe(1)):
            self.prepared.append(module)
        else:
            self.notes.append(self.fused.could_not_keep(module))

    def __enter__(self):
        self.hook = register_module_forward_pre_hook(self.before_module)
        return super().__enter__()

    def __exit__(self, *exception):
        self.hook.remove()
        super().__exit__(*exception)
        self.python_calls.close()

    @property
    def kernels(self):
        return [name for name in self.names if name in KERNELS]


@contextlib.contextmanager
def counted_kernels():
    """The names of the fused kernels that torch calls, without any mode."""
    called = []

    def counting(name, kernel):
        def count(*args):
            called.append(name)
            return kernel(*args)

        return count

    with pytest.MonkeyPatch.context() as patch:
        for name in KERNELS:
            patch.setattr(torch, name, counting(name, getattr(torch, name)))
        yield called


def dense(output):
    outputs = output if isinstance(output, tuple) else (output,)
    return [each.to_padded_tensor(7.0) if each.is_nested else each for each in outputs if each is not None]


def assert_same(expected, got):
    expected, got = dense(expected), dense(got)
    assert len(expected) == len(got)
    for one, other in zip(expected, got):
        assert one.dtype == other.dtype and one.stride() == other.stride()
        torch.testing.assert_close(other, one, rtol=0, atol=0, equal_nan=True)


def run_both(call):
    """Run `call` plainly and recorded; return the fused kernels that ran."""

    def seeded():
        torch.manual_seed(3)
        return call()

    with counted_kernels() as kernels:
        plain = seeded()
    with Recording() as recording:
        recorded = seeded()
    assert_same(plain, recorded)
    assert recording.kernels == kernels
    assert set(recording.notes) <= {None}
    assert recording.bypassed <= {None}
    return kernels


CONTEXTS = {
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "grad": contextlib.nullcontext,
    "autocast": lambda: _both(torch.no_grad(), torch.autocast("cpu", torch.bfloat16)),
    "no_fastpath": lambda: _both(torch.no_grad(), _without_fastpath()),
    "default_device": lambda: _both(torch.no_grad(), torch.device("cpu")),
}
# Torch asks `torch.is_autocast_enabled()`, which is about CUDA.
FUSING_CONTEXTS = ("no_grad", "inference_mode", "autocast")


@contextlib.contextmanager
def _both(outer, inner):
    with outer, inner:
        yield


@contextlib.contextmanager
def _without_fastpath():
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(True)


def masks(kind, batch=2, length=5):
    """The masks of one kind, by the names that an encoder layer gives them."""
    padding = torch.arange(length).expand(batch, length) >= torch.tensor([[length], [3]])
    causal = nn.Transformer.generate_square_subsequent_mask(length)
    return {
        "no_mask": {},
        "src_mask": {"src_mask": causal.isinf()},
        "float_mask": {"src_mask": causal},
        "padding": {"src_key_padding_mask": padding},
        "both_masks": {"src_mask": causal.isinf(), "src_key_padding_mask": padding},
        "causal": {"src_mask": causal.isinf(), "is_causal": True},
    }[kind]


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("mask", ["no_mask", "src_mask", "float_mask", "padding", "both_masks", "causal"])
@pytest.mark.parametrize("norm_first", [False, True], ids=["norm_last", "norm_first"])
@pytest.mark.parametrize("batch_first", [False, True], ids=["seq_first", "batch_first"])
def test_encoder_layer_by_masks_and_context(batch_first, norm_first, mask, context):
    layer = nn.TransformerEncoderLayer(12, 4, 16, batch_first=batch_first, norm_first=norm_first).eval()
    x = torch.randn(2, 5, 12) if batch_first else torch.randn(5, 2, 12)
    with CONTEXTS[context]():
        kernels = run_both(lambda: layer(x, **masks(mask)))
    expected = ["_transformer_encoder_layer_fwd"] if batch_first and context in FUSING_CONTEXTS else []
    assert kernels == expected


LAYERS = {
    "gelu": (dict(activation="gelu"), 1),
    "function_relu": (dict(activation=F.relu), 1),
    "module_gelu": (dict(activation=nn.GELU()), 1),
    "other_activation": (dict(activation=torch.tanh), 0),
    "odd_heads": (dict(nhead=3), 0),
    "one_head": (dict(nhead=1), 0),
    "no_bias": (dict(bias=False), 0),
    "eps": (dict(layer_norm_eps=1e-3), 1),
    "double": (dict(dtype=torch.float64), 1),
}


@pytest.mark.parametrize("case", LAYERS)
def test_encoder_layer_by_its_options(case):
    options, fused = LAYERS[case]
    options = {"nhead": 4, **options}
    layer = nn.TransformerEncoderLayer(12, dim_feedforward=16, batch_first=True, **options).eval()
    x = torch.randn(2, 5, 12, dtype=options.get("dtype", torch.float32))
    with torch.no_grad():
        kernels = run_both(lambda: layer(x))
    assert kernels.count("_transformer_encoder_layer_fwd") == fused


def eval_layer(**options):
    return nn.TransformerEncoderLayer(12, 4, 16, batch_first=True, **options).eval()


def test_training_layer_is_not_fused():
    layer = eval_layer().train()
    with torch.no_grad():
        assert run_both(lambda: layer(torch.ones(2, 5, 12))) == []


def test_unbatched_input_is_not_fused():
    with torch.no_grad():
        assert run_both(lambda: eval_layer()(torch.ones(5, 12))) == []


def test_frozen_parameters_fuse_with_gradients_on():
    layer = eval_layer().requires_grad_(False)
    assert run_both(lambda: layer(torch.ones(2, 5, 12))) == ["_transformer_encoder_layer_fwd"]


@pytest.mark.parametrize("hooked", ["linear1", "self_attn", ""])
def test_a_hook_inside_leaves_attention_its_own_kernel(hooked):
    layer = eval_layer()
    layer.get_submodule(hooked).register_forward_hook(lambda module, args, output: None)
    with torch.no_grad():
        assert run_both(lambda: layer(torch.ones(2, 5, 12))) == ["_native_multi_head_attention"]


@pytest.mark.parametrize("context", [name for name in CONTEXTS if name != "autocast"])
@pytest.mark.parametrize("mask", ["no_mask", "src_mask", "padding", "both_masks"])
@pytest.mark.parametrize("nested", [False, True], ids=["no_nested", "nested"])
def test_encoder_by_masks_and_context(nested, mask, context):
    encoder = nn.TransformerEncoder(eval_layer(), 2, nn.LayerNorm(12), enable_nested_tensor=nested).eval()
    arguments = {"mask" if name == "src_mask" else name: value for name, value in masks(mask).items()}
    with CONTEXTS[context]():
        kernels = run_both(lambda: encoder(torch.ones(2, 5, 12), **arguments))
    assert len(kernels) == (2 if context in FUSING_CONTEXTS else 0)


def test_nested_conversion_is_seen():
    encoder = nn.TransformerEncoder(eval_layer(), 2).eval()
    with torch.no_grad(), Recording() as recording:
        encoder(torch.ones(2, 5, 12), **masks("padding"))
    assert {"_nested_tensor_from_mask", "to_padded_tensor"} <= set(recording.names)


ATTENTIONS = {
    "self": ({}, {}, 1),
    "no_weights": ({}, dict(need_weights=False), 1),
    "weights_by_head": ({}, dict(average_attn_weights=False), 1),
    "attn_mask": ({}, dict(attn_mask=masks("src_mask")["src_mask"]), 1),
    "padding": ({}, dict(key_padding_mask=masks("padding")["src_key_padding_mask"]), 1),
    "double": (dict(dtype=torch.float64), {}, 1),
    "seq_first": (dict(batch_first=False), {}, 0),
    "odd_heads": (dict(num_heads=3), {}, 0),
    "no_bias": (dict(bias=False), {}, 0),
    "bias_kv": (dict(add_bias_kv=True), {}, 0),
    "zero_attention": (dict(add_zero_attn=True), {}, 0),
    "own_key_size": (dict(kdim=6, vdim=6), dict(key=torch.ones(2, 4, 6), value=torch.ones(2, 4, 6)), 0),
    "cross": ({}, dict(key=torch.ones(2, 3, 12), value=torch.ones(2, 3, 12)), 0),
    "value_apart": ({}, dict(value=torch.full((2, 5, 12), 2.0)), 0),
}


@pytest.mark.parametrize("context", ["no_grad", "inference_mode", "grad", "autocast"])
@pytest.mark.parametrize("case", ATTENTIONS)
def test_attention(case, context):
    options, arguments, fused = ATTENTIONS[case]
    options = {"num_heads": 4, "batch_first": True, **options}
    attention = nn.MultiheadAttention(12, **options).eval()
    x = torch.randn(2, 5, 12, dtype=options.get("dtype", torch.float32))
    arguments = {"key": x, "value": x, **arguments}
    with CONTEXTS[context]():
        kernels = run_both(lambda: attention(x, **arguments))
    assert kernels == ["_native_multi_head_attention"] * (fused if context in FUSING_CONTEXTS else 0)


def test_nested_input_runs():
    x = torch.nested.nested_tensor([torch.ones(3, 12), torch.ones(5, 12)])
    with torch.no_grad():
        assert run_both(lambda: eval_layer()(x)) == ["_transformer_encoder_layer_fwd"]


def test_whole_transformer():
    model = nn.Transformer(12, 4, 2, 2, 16, batch_first=True).eval()
    with torch.no_grad():
        kernels = run_both(lambda: model(torch.ones(2, 5, 12), torch.ones(2, 4, 12)))
    assert kernels == ["_transformer_encoder_layer_fwd"] * 2 + ["_native_multi_head_attention"] * 2


class Overriding(torch.Tensor):
    pass


def test_a_subclass_input_still_counts():
    x = torch.ones(2, 5, 12).as_subclass(Overriding)
    with torch.no_grad():
        assert run_both(lambda: eval_layer()(x)) == []


class Other(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("order", ["below", "above"])
def test_another_mode_still_counts(order):
    layer, x = eval_layer(), torch.ones(2, 5, 12)
    with torch.no_grad():
        with Other():
            plain = layer(x)
        modes = [Other(), Recording()] if order == "below" else [Recording(), Other()]
        with modes[0], modes[1]:
            recorded = layer(x)
    (recording,) = [mode for mode in modes if isinstance(mode, Recording)]
    assert_same(plain, recorded)
    assert recording.kernels == []


def test_functions_disabled_around_the_call():
    layer, x = eval_layer(), torch.ones(2, 5, 12)
    with torch.no_grad(), torch._C.DisableTorchFunction():
        plain = layer(x)
        with Recording() as recording, counted_kernels() as kernels:
            recorded = layer(x)
    assert_same(plain, recorded)
    assert kernels == ["_transformer_encoder_layer_fwd"]
    assert recording.names == []


class Renamed(nn.TransformerEncoderLayer):
    def _ff_block(self, x):
        return super()._ff_block(x)


class Calling(nn.TransformerEncoderLayer):
    def forward(self, src, **arguments):
        return super().forward(src * 1, **arguments)


def test_a_subclass_with_torchs_forward_is_kept():
    layer = Renamed(12, 4, 16, batch_first=True).eval()
    with torch.no_grad():
        assert run_both(lambda: layer(torch.ones(2, 5, 12))) == ["_transformer_encoder_layer_fwd"]


def notes_of(layer, context=torch.no_grad):
    with context(), Recording() as recording:
        layer(torch.ones(2, 5, 12))
    return {note for note in recording.notes + list(recording.bypassed) if note}


def test_a_subclass_forward_is_noted():
    layer = Calling(12, 4, 16, batch_first=True).eval()
    notes = notes_of(layer)
    assert any(note.startswith("Calling has a forward of its own") for note in notes)
    assert any(note.startswith("TransformerEncoderLayer.forward was called directly") for note in notes)


@pytest.mark.parametrize(
    ("prepare", "context"),
    [
        (lambda layer: layer.train(), torch.no_grad),
        (lambda layer: layer, contextlib.nullcontext),
        (lambda layer: layer, CONTEXTS["no_fastpath"]),
    ],
    ids=["training", "gradients", "no_fastpath"],
)
def test_nothing_is_noted_where_torch_would_not_fuse(prepare, context):
    layer = prepare(Calling(12, 4, 16, batch_first=True).eval())
    assert notes_of(layer, context) == set()


def test_nothing_is_noted_for_seq_first():
    assert notes_of(Calling(12, 4, 16).eval()) == set()


def test_an_instance_forward_is_noted_and_runs():
    layer = eval_layer()
    layer.forward = lambda x: x + 1
    with torch.no_grad(), Recording() as recording:
        output = layer(torch.ones(2, 5, 12))
    assert torch.equal(output, torch.full((2, 5, 12), 2.0))
    (note,) = filter(None, recording.notes)
    assert note == (
        "TransformerEncoderLayer has a forward of its own; if that calls torch's, it may have run unfused "
        "during the capture, its output then differing in the last bits."
    )


def test_a_patched_class_is_noted_and_runs(monkeypatch):
    own = nn.TransformerEncoderLayer.forward
    monkeypatch.setattr(
        nn.TransformerEncoderLayer, "forward", functools.wraps(own)(lambda self, x: own(self, x))
    )
    layer = eval_layer()
    assert "TransformerEncoderLayer has a forward of its own" in str(notes_of(layer))


def test_a_direct_forward_is_noted():
    layer = eval_layer()
    with torch.no_grad(), Recording() as recording:
        layer.forward(torch.ones(2, 5, 12))
    assert "TransformerEncoderLayer.forward was called directly" in str(recording.bypassed)


def test_a_frame_of_another_shape_changes_nothing():
    fused, layer = FusedForwards(), eval_layer()
    assert not fused.prepare(layer, sys._getframe())
    with torch.no_grad():
        assert "could not be redirected" in str(fused.could_not_keep(layer))


def test_other_modules_are_left_alone():
    fused, linear = FusedForwards(), nn.Linear(2, 2)
    assert not fused.prepare(linear, sys._getframe())
    assert fused.could_not_keep(linear) is None


def test_module_and_class_are_unchanged():
    layer = eval_layer()
    before = [
        dict(vars(each)) for each in (layer, type(layer), nn.MultiheadAttention, torch, torch.overrides)
    ]
    with torch.no_grad(), Recording() as recording:
        layer(torch.ones(2, 5, 12))
    after = [dict(vars(each)) for each in (layer, type(layer), nn.MultiheadAttention, torch, torch.overrides)]
    assert recording.prepared == [layer]
    for was, is_now in zip(before, after):
        assert {name: id(value) for name, value in was.items()} == {
            name: id(value) for name, value in is_now.items()
        }


def test_only_the_running_call_is_redirected():
    layer, x = eval_layer(), torch.ones(2, 5, 12)
    with torch.no_grad():
        with Recording():
            layer(x)
        assert layer.forward.__func__ is nn.TransformerEncoderLayer.forward
        assert run_both(lambda: layer(x)) == ["_transformer_encoder_layer_fwd"]


def test_a_call_on_another_thread_is_not_disturbed():
    layer, x = eval_layer(), torch.ones(2, 5, 12)
    outputs = []

    def work():
        with torch.no_grad():
            outputs.append(layer(x))

    with torch.no_grad():
        plain = layer(x)
        with Recording():
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
    assert_same(plain, outputs[0])


def test_an_error_inside_is_torchs_own():
    layer, x = eval_layer(), torch.ones(2, 5, 7)
    with torch.no_grad():
        with pytest.raises((RuntimeError, AssertionError)) as plain:
            layer(x)
        with pytest.raises(type(plain.value)) as recorded, Recording():
            layer(x)
    assert str(recorded.value) == str(plain.value)
    assert torch._C._len_torch_function_stack() == 0
