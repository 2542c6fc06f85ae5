"""diffusers: denoising U-Nets and transformers, autoencoders, control networks."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import diffusers
import torch

from tests.zoo.entry import Entry, Inputs


def entry(name: str, inputs: Callable[[], Inputs], **options: Any) -> Entry:
    def build() -> torch.nn.Module:
        return getattr(diffusers, name)(**deepcopy(options)).eval()

    return Entry(name, "diffusers", "diffusion", build, inputs)


def noisy(*shape: int, **conditions: tuple[int, ...]) -> Callable[[], Inputs]:
    """A noisy sample, its time step, and what it is conditioned on."""

    def make() -> Inputs:
        given = {key: torch.randn(condition) for key, condition in conditions.items()}
        return Inputs((torch.randn(shape), torch.tensor([10])), given)

    return make


def latent(*shape: int, **conditions: tuple[int, ...]) -> Callable[[], Inputs]:
    """As `noisy`, for the transformers that take all by keyword."""

    def make() -> Inputs:
        given = {key: torch.randn(condition) for key, condition in conditions.items()}
        return Inputs(kwargs={"hidden_states": torch.randn(shape), "timestep": torch.tensor([10]), **given})

    return make


def picture(*shape: int) -> Callable[[], Inputs]:
    return lambda: Inputs((torch.randn(shape),))


def flux() -> Inputs:
    return Inputs(
        kwargs={
            "hidden_states": torch.randn(1, 16, 4),
            "encoder_hidden_states": torch.randn(1, 6, 32),
            "pooled_projections": torch.randn(1, 32),
            "timestep": torch.tensor([0.5]),
            "img_ids": torch.randn(16, 3),
            "txt_ids": torch.randn(6, 3),
        }
    )


def control() -> Inputs:
    sample, step = torch.randn(1, 4, 8, 8), torch.tensor([10])
    return Inputs(
        (sample, step),
        {"encoder_hidden_states": torch.randn(1, 6, 32), "controlnet_cond": torch.rand(1, 3, 64, 64)},
    )


UNET: dict[str, Any] = dict(block_out_channels=(8, 16), layers_per_block=1, norm_num_groups=4)
DOWN = ("CrossAttnDownBlock2D", "DownBlock2D")
UP = ("UpBlock2D", "CrossAttnUpBlock2D")

# fmt: off
ENTRIES = [
    entry("AsymmetricAutoencoderKL", picture(1, 3, 16, 16), down_block_types=("DownEncoderBlock2D", ),
       down_block_out_channels=(8, ), up_block_types=("UpDecoderBlock2D", ), up_block_out_channels=(8, ),
       norm_num_groups=4),
    entry("AutoencoderKL", picture(1, 3, 16, 16), **UNET, down_block_types=("DownEncoderBlock2D", ) * 2,
       up_block_types=("UpDecoderBlock2D", ) * 2),
    entry("AutoencoderTiny", picture(1, 3, 16, 16), encoder_block_out_channels=(8, 8),
       decoder_block_out_channels=(8, 8), num_encoder_blocks=(1, 1), num_decoder_blocks=(1, 1)),
    entry("ControlNetModel", control, **UNET, down_block_types=DOWN, cross_attention_dim=32,
       attention_head_dim=4, conditioning_embedding_out_channels=(4, 8, 8, 8)),
    entry("DiTTransformer2DModel", lambda: Inputs((torch.randn(1, 4, 8, 8), torch.tensor([10]),
       torch.tensor([1]))), sample_size=8, num_layers=2, num_attention_heads=2, attention_head_dim=8,
       in_channels=4, norm_num_groups=4),
    entry("FluxTransformer2DModel", flux, patch_size=1, in_channels=4, num_layers=1, num_single_layers=1,
       attention_head_dim=16, num_attention_heads=2, joint_attention_dim=32, pooled_projection_dim=32,
       axes_dims_rope=(4, 4, 8)),
    entry("HunyuanDiT2DModel", lambda: Inputs((torch.randn(1, 4, 8, 8), torch.tensor([10.0])),
       dict(encoder_hidden_states=torch.randn(1, 6, 32), text_embedding_mask=torch.ones(1, 6),
       encoder_hidden_states_t5=torch.randn(1, 6, 32), text_embedding_mask_t5=torch.ones(1, 6),
       image_rotary_emb=[torch.randn(16, 8), torch.randn(16, 8)])), sample_size=8, patch_size=2,
       in_channels=4, num_layers=2, num_attention_heads=2, attention_head_dim=8, hidden_size=16,
       mlp_ratio=2.0, cross_attention_dim=32, cross_attention_dim_t5=32, pooled_projection_dim=16,
       text_len=6, text_len_t5=6, use_style_cond_and_image_meta_size=False),
    entry("PixArtTransformer2DModel", latent(1, 4, 8, 8, encoder_hidden_states=(1, 6, 16)), sample_size=8,
       num_layers=2, num_attention_heads=2, attention_head_dim=8, cross_attention_dim=16,
       caption_channels=16, norm_num_groups=4),
    entry("SD3Transformer2DModel", latent(1, 4, 8, 8, encoder_hidden_states=(1, 6, 32),
       pooled_projections=(1, 64)), sample_size=8, patch_size=1, in_channels=4, num_layers=2,
       attention_head_dim=8, num_attention_heads=4, joint_attention_dim=32, caption_projection_dim=32,
       pooled_projection_dim=64, out_channels=4),
    entry("StableCascadeUNet", lambda: Inputs((torch.randn(1, 4, 8, 8), torch.tensor([0.5]), torch.randn(1,
       1, 16))), in_channels=4, out_channels=4, timestep_ratio_embedding_dim=8, conditioning_dim=16,
       block_out_channels=(16, 16), num_attention_heads=(0, 2), down_num_layers_per_block=(1, 1),
       up_num_layers_per_block=(1, 1), down_blocks_repeat_mappers=(1, 1), up_blocks_repeat_mappers=(1, 1),
       block_types_per_layer=(("SDCascadeResBlock", "SDCascadeTimestepBlock"), ("SDCascadeResBlock",
       "SDCascadeTimestepBlock", "SDCascadeAttnBlock")), clip_text_pooled_in_channels=16, clip_seq=1,
       patch_size=1, dropout=(0.1, 0.1), self_attn=True, switch_level=(False,)),
    entry("T2IAdapter", picture(1, 3, 32, 32), channels=[8, 16], num_res_blocks=1, downscale_factor=4),
    entry("Transformer2DModel", lambda: Inputs((torch.randn(1, 8, 8, 8),)), num_attention_heads=2,
       attention_head_dim=8, in_channels=8, num_layers=1, norm_num_groups=4),
    entry("UNet1DModel", noisy(1, 2, 64), sample_size=64, in_channels=2, out_channels=2,
       extra_in_channels=64, block_out_channels=(32, 32, 64)),
    entry("UNet2DModel", noisy(1, 3, 16, 16), sample_size=16, **UNET, attention_head_dim=4,
       down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D")),
    entry("UNet2DConditionModel", noisy(1, 4, 8, 8, encoder_hidden_states=(1, 6, 32)), **UNET,
       sample_size=8, down_block_types=DOWN, up_block_types=UP, cross_attention_dim=32,
       attention_head_dim=4),
    entry("UNet3DConditionModel", noisy(1, 4, 2, 8, 8, encoder_hidden_states=(1, 6, 8)), **UNET,
       sample_size=8, down_block_types=("CrossAttnDownBlock3D", "DownBlock3D"), up_block_types=("UpBlock3D",
       "CrossAttnUpBlock3D"), cross_attention_dim=8, attention_head_dim=4),
    entry("UNetMotionModel", noisy(1, 4, 2, 8, 8, encoder_hidden_states=(2, 6, 16)), block_out_channels=(16,
       32), layers_per_block=1, norm_num_groups=4, sample_size=8,
       down_block_types=("CrossAttnDownBlockMotion", "DownBlockMotion"), up_block_types=("UpBlockMotion",
       "CrossAttnUpBlockMotion"), cross_attention_dim=16, num_attention_heads=2,
       motion_num_attention_heads=2, motion_max_seq_length=4),
    entry("UVit2DModel", lambda: Inputs((torch.randint(0, 30, (1, 8, 8)), torch.randn(1, 6, 32),
       torch.randn(1, 16), torch.randn(1, 5))), hidden_size=32, cond_embed_dim=16, encoder_hidden_size=32,
       vocab_size=32, codebook_size=30, in_channels=32, block_out_channels=32, num_hidden_layers=2,
       num_attention_heads=4, block_num_heads=4, intermediate_size=64, micro_cond_encode_dim=4,
       micro_cond_embed_dim=20, sample_size=8),
    entry("VQModel", picture(1, 3, 16, 16), **UNET, down_block_types=("DownEncoderBlock2D", ) * 2,
       up_block_types=("UpDecoderBlock2D", ) * 2, latent_channels=4, num_vq_embeddings=32),
    entry("WanTransformer3DModel", latent(1, 4, 2, 8, 8, encoder_hidden_states=(1, 6, 16)), patch_size=(1,
       2, 2), num_attention_heads=2, attention_head_dim=12, in_channels=4, out_channels=4, text_dim=16,
       freq_dim=16, ffn_dim=32, num_layers=2, rope_max_seq_len=32),
]
# fmt: on
