"""Every model of the zoo, from the packages that are installed."""

from __future__ import annotations

import os
from importlib import import_module
from importlib.util import find_spec

from tests.zoo.entry import Entry

FILES = {
    "torchvision": ("torchvision_models",),
    "timm": ("timm_models",),
    "transformers": ("transformers_text", "transformers_vision", "transformers_other"),
    "diffusers": ("diffusers_models",),
    "torch_geometric": ("graph_models",),
}
"""Package to the files that hold its models."""

SPREAD = (
    ("torchvision", "DenseNet"),
    ("torchvision", "ResNet, in training"),
    ("torchvision", "MobileNet v2, int8"),
    ("torchvision", "FCOS"),
    ("torchvision", "MViT"),
    ("timm", "sequencer2d_s"),
    ("timm", "gmlp_ti16_224"),
    ("timm", "beit_base_patch16_224"),
    ("transformers", "BertForMaskedLM"),
    ("transformers", "LlamaForCausalLM"),
    ("transformers", "MixtralForCausalLM"),
    ("transformers", "MambaForCausalLM"),
    ("transformers", "T5ForConditionalGeneration"),
    ("transformers", "SamModel"),
    ("transformers", "DPTForDepthEstimation"),
    ("transformers", "WhisperForConditionalGeneration"),
    ("transformers", "LlavaForConditionalGeneration"),
    ("transformers", "TimeSeriesTransformerForPrediction"),
    ("diffusers", "UNet2DConditionModel"),
    ("torch_geometric", "GAT"),
)
"""The models that every run of the tests takes: at least one of each family."""

REQUIRED = "TORCHLENS_ALL_PACKAGES"
"""Set where a missing package is an error, as under tox; elsewhere its models are skipped."""


def missing_packages() -> list[str]:
    missing = [package for package in FILES if find_spec(package) is None]
    if missing and os.environ.get(REQUIRED):
        raise ModuleNotFoundError(f"{', '.join(missing)}: not installed, and {REQUIRED} is set")
    return missing


def entries() -> list[Entry]:
    absent = missing_packages()
    files = [file for package, files in FILES.items() if package not in absent for file in files]
    return [entry for file in files for entry in import_module(f"tests.zoo.{file}").ENTRIES]


def spread(catalogue: list[Entry]) -> list[Entry]:
    return [entry for entry in catalogue if (entry.package, entry.name) in SPREAD]
