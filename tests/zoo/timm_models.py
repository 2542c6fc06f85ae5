"""timm: image models, shrunk where their constructors let them."""

from __future__ import annotations

from typing import Any

import timm
import torch

from tests.zoo.entry import Entry, Inputs


def entry(family: str, name: str, size: int = 64, **options: Any) -> Entry:
    def build() -> torch.nn.Module:
        return timm.create_model(name, num_classes=10, **options).eval()

    return Entry(name, "timm", family, build, lambda: Inputs((torch.randn(1, 3, size, size),)))


def convolutional(name: str, size: int = 64, **options: Any) -> Entry:
    return entry("convolutional", name, size, **options)


def transformer(name: str, size: int = 32, **options: Any) -> Entry:
    return entry("vision transformer", name, size, **options)


def sized(name: str, size: int = 32, **options: Any) -> Entry:
    """A transformer that is told the size of its images."""
    return entry("vision transformer", name, size, img_size=size, **options)


NARROW: dict[str, Any] = dict(embed_dim=48, depth=2, num_heads=3)

ENTRIES = [
    convolutional("convnextv2_atto"),
    convolutional("cs3darknet_focus_s"),
    convolutional("dla60x_c"),
    convolutional("dpn48b"),
    convolutional("ese_vovnet19b_slim_dw"),
    convolutional("fasternet_t0"),
    convolutional("fbnetc_100"),
    convolutional("gernet_s"),
    convolutional("ghostnetv3_050"),
    convolutional("hardcorenas_a"),
    convolutional("hgnetv2_b0"),
    convolutional("hrnet_w18_small"),
    convolutional("inception_next_atto"),
    convolutional("lambda_resnet26rpt_256", 64, img_size=64),
    convolutional("legacy_seresnet18"),
    convolutional("mambaout_femto", dims=(16, 32, 48, 64), depths=(1, 1, 1, 1)),
    convolutional("mixnet_s"),
    convolutional("mobilenetv4_conv_small"),
    convolutional("mobileone_s0"),
    convolutional("nf_regnet_b0"),
    convolutional("regnetz_005"),
    convolutional("repghostnet_050"),
    convolutional("repvgg_a0"),
    convolutional("repvit_m0_9"),
    convolutional("res2net50_14w_8s", layers=(1, 1, 1, 1)),
    convolutional("resnest14d"),
    convolutional("resnetv2_18"),
    convolutional("rexnet_100"),
    convolutional("skresnet18"),
    convolutional("starnet_s050"),
    convolutional("tinynet_e"),
    entry("state space", "efficientvim_m1"),
    entry("recurrent", "sequencer2d_s", img_size=64, layers=(1, 1, 1, 1)),
    entry("mixer", "convmixer_768_32"),
    entry("mixer", "gmlp_ti16_224", 32, img_size=32),
    entry("mixer", "mixer_s16_224", 32, img_size=32),
    entry("mixer", "poolformer_s12"),
    entry("mixer", "resmlp_12_224", 32, img_size=32),
    transformer("botnet26t_256", 64, img_size=64),
    transformer("edgenext_xx_small", 64),
    transformer("efficientvit_b0", 64),
    transformer("fastvit_t8", 64),
    transformer("halonet26t", 256),
    transformer("iformer_t", 64),
    transformer("mobilevit_xxs", 64),
    transformer("mobilevitv2_050", 64),
    transformer("pvt_v2_b0", 64),
    transformer("shvit_s1", 64),
    transformer("swiftformer_xs", 64),
    transformer("vit_small_patch16_dinov3", **NARROW),
    sized("beit_base_patch16_224", **NARROW),
    sized("cait_xxs24_224", embed_dim=48, depth=2, num_heads=3),
    sized("coat_tiny", 64),
    sized("coatnet_0_224", 64),
    sized("convit_tiny", embed_dim=48, depth=3, num_heads=3, local_up_to_layer=2),
    transformer("crossvit_9_240", 240),
    transformer("davit_tiny", 64, embed_dims=(16, 32), depths=(1, 1), num_heads=(2, 4)),
    sized("deit_tiny_distilled_patch16_224", **NARROW),
    sized("efficientformerv2_s0", 64),
    sized("efficientvit_m0", 64),
    sized("eva02_tiny_patch14_224", 28, **NARROW),
    transformer("focalnet_tiny_srf", 64),
    sized("gcvit_xxtiny", 64),
    sized("hiera_tiny_224", 64, embed_dim=24, num_heads=1, stages=(1, 1, 2, 1)),
    sized("levit_128", 64),
    sized("maxvit_rmlp_pico_rw_256", 64),
    sized("mvitv2_tiny", 64),
    sized("nest_tiny", 64),
    sized("pit_ti_224", 64),
    sized("qwen3_vit_88m", 32, **NARROW),
    transformer("sam2_hiera_tiny", 64),
    sized("samvit_base_patch16_224", 64, **NARROW),
    sized("swinv2_cr_tiny_224", 64, embed_dim=24, depths=(1, 1, 1, 1)),
    transformer("tiny_vit_5m_224", 64),
    sized("tnt_s_patch16_224", 32, depth=2),
    sized("twins_pcpvt_small", 64, depths=(1, 1, 1, 1)),
    sized("twins_svt_small", 64, depths=(1, 1, 1, 1)),
    sized("visformer_tiny", 64),
    sized("vit_relpos_small_patch16_224", 32, **NARROW),
    sized("vit_tiny_r_s16_p8_224", 32, depth=2),
    sized("volo_d1_224", 64),
    sized("xcit_nano_12_p16_224", 64, depth=2),
    entry("vision transformer", "naflexvit_base_patch16_gap", 32, **NARROW),
]
