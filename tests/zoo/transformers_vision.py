"""transformers: images and video."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tests.zoo.entry import Inputs
from tests.zoo.transformers_text import VOCABULARY, hf, sizes, tokens


def image(size: int = 32, count: int = 2, **more: Any) -> Callable[[], Inputs]:
    return lambda: Inputs(kwargs={"pixel_values": torch.rand(count, 3, size, size), **more})


def clip(frames: int = 4, size: int = 32) -> Callable[[], Inputs]:
    return lambda: Inputs(kwargs={"pixel_values": torch.rand(1, frames, 3, size, size)})


def vit(**options: Any) -> dict[str, Any]:
    usual = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64)
    return usual | dict(image_size=32, patch_size=8) | options


def residual(*stages: str) -> dict[str, Any]:
    """A ResNet as backbone."""
    shape = dict(embedding_size=8, hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1])
    return dict(model_type="resnet", layer_type="basic", out_features=list(stages or ("stage4",))) | shape


def swin(*stages: str, **options: Any) -> dict[str, Any]:
    shape = dict(image_size=64, patch_size=4, embed_dim=8, depths=[1, 1, 1, 1], num_heads=[1, 2, 2, 4])
    named = dict(model_type="swin", out_features=list(stages)) if stages else {}
    return named | shape | dict(window_size=2) | options


def detr(**options: Any) -> dict[str, Any]:
    layers = dict(encoder_layers=1, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4)
    widths = dict(d_model=32, encoder_ffn_dim=32, decoder_ffn_dim=32, num_queries=6)
    return layers | widths | dict(backbone_config=residual(), use_timm_backbone=False) | options


def rt_detr(**options: Any) -> dict[str, Any]:
    widths = dict(encoder_hidden_dim=32, d_model=32, encoder_ffn_dim=32, decoder_ffn_dim=32)
    more = dict(encoder_in_channels=[16, 24, 32], decoder_in_channels=[32, 32, 32], num_queries=6)
    return (
        widths
        | more
        | dict(encoder_attention_heads=4, decoder_attention_heads=4, decoder_layers=2, num_denoising=0)
        | options
    )


MAYBE_TEXT = dict(vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, num_attention_heads=4)


def image_and_query(size: int) -> Callable[[], Inputs]:
    return lambda: Inputs(
        kwargs={"pixel_values": torch.rand(1, 3, size, size), "input_ids": tokens(1, 6),
                "attention_mask": torch.ones(1, 6, dtype=torch.long)}
    )  # fmt: skip


def points(size: int) -> Callable[[], Inputs]:
    return lambda: Inputs(
        kwargs={"pixel_values": torch.rand(1, 3, size, size), "input_points": torch.rand(1, 1, 2, 2) * size,
                "input_labels": torch.ones(1, 1, 2, dtype=torch.long)}
    )  # fmt: skip


# fmt: off
BACKBONES = [
    hf("convolutional", "BitModel", image(), embedding_size=8, hidden_sizes=[8, 16, 24, 32], depths=[1, 1,
       1, 1], num_groups=4),
    hf("convolutional", "MobileNetV1Model", image(), depth_multiplier=0.25),
    hf("vision transformer", "CvtModel", image(64), embed_dim=[8, 16, 32], num_heads=[1, 2, 4], depth=[1, 2,
       3]),
    hf("vision transformer", "Dinov2WithRegistersModel", image(), **vit()),
    hf("vision transformer", "Data2VecVisionModel", image(), **vit(use_relative_position_bias=True)),
    hf("vision transformer", "ImageGPTModel", lambda: Inputs(kwargs={"input_ids": tokens(2, 16)}),
       vocab_size=VOCABULARY, n_positions=32, n_embd=32, n_layer=2, n_head=4),
    hf("vision transformer", "PvtModel", image(64), image_size=64, hidden_sizes=[8, 16, 24, 32], depths=[1,
       1, 1, 1], num_attention_heads=[1, 2, 2, 4]),
    hf("vision transformer", "ViTMAEForPreTraining", image(), **vit(decoder_hidden_size=32,
       decoder_num_hidden_layers=1, decoder_num_attention_heads=4, decoder_intermediate_size=64)),
    hf("vision transformer", "ViTMSNModel", image(), **vit()),
]

DETECTORS = [
    hf("detection", "ConditionalDetrForObjectDetection", image(64), **detr()),
    hf("detection", "DabDetrForObjectDetection", image(64), **detr(hidden_size=32)),
    hf("detection", "DeformableDetrForObjectDetection", image(64), **detr(backbone_config=residual("stage2",
       "stage3", "stage4"), with_box_refine=True, two_stage=False)),
    hf("detection", "DetrForObjectDetection", image(64), **detr()),
    hf("detection", "DFineForObjectDetection", image(64), **rt_detr(encoder_in_channels=[16, 24, 32],
       backbone_config=dict(model_type="hgnet_v2", stage_in_channels=[8, 16, 16, 24], stage_mid_channels=[8,
       8, 8, 8], stage_out_channels=[16, 16, 24, 32], stage_num_blocks=[1, 1, 1, 1], stem_channels=[3, 8,
       8], depths=[1, 1, 1, 1], hidden_sizes=[16, 16, 24, 32], stage_numb_of_layers=[1, 1, 1, 1],
       out_features=["stage2", "stage3", "stage4"]))),
    hf("detection", "GroundingDinoForObjectDetection", image_and_query(128),
       **detr(backbone_config=swin("stage2", "stage3", "stage4"), text_config=dict(model_type="bert",
       **sizes()), encoder_n_points=2, decoder_n_points=2, max_text_len=8)),
    hf("detection", "OwlViTForObjectDetection", lambda: Inputs(kwargs={"pixel_values": torch.rand(1, 3, 32,
       32), "input_ids": tokens(2, 6)}), text_config=sizes(max_position_embeddings=16), vision_config=vit(),
       projection_dim=32),
    hf("detection", "RTDetrForObjectDetection", image(64),
       **rt_detr(backbone_config=dict(model_type="rt_detr_resnet", embedding_size=8, hidden_sizes=[8, 16,
       24, 32], depths=[1, 1, 1, 1], layer_type="basic", out_features=["stage2", "stage3", "stage4"]))),
    hf("detection", "TableTransformerForObjectDetection", image(64), **detr()),
    hf("detection", "YolosForObjectDetection", image(), **vit(image_size=[32, 32], num_detection_tokens=5)),
]

SEGMENTERS = [
    hf("segmentation", "BeitForSemanticSegmentation", image(), **vit(num_hidden_layers=4, out_indices=[1, 2,
       3, 4], pool_scales=[1, 2])),
    hf("segmentation", "CLIPSegForImageSegmentation", image_and_query(32),
       text_config=sizes(max_position_embeddings=16), vision_config=vit(num_hidden_layers=3),
       projection_dim=32, extract_layers=[0, 1], reduce_dim=16, decoder_num_attention_heads=2,
       decoder_intermediate_size=32),
    hf("segmentation", "EomtForUniversalSegmentation", image(64), **vit(image_size=64, num_upscale_blocks=1,
       num_queries=4, num_blocks=1)),
    hf("segmentation", "Mask2FormerForUniversalSegmentation", image(64), backbone_config=swin("stage1",
       "stage2", "stage3", "stage4"), feature_size=32, mask_feature_size=32, hidden_dim=32,
       encoder_feedforward_dim=32, dim_feedforward=32, encoder_layers=1, decoder_layers=2,
       num_attention_heads=2, num_queries=5),
    hf("segmentation", "MaskFormerForInstanceSegmentation", image(64), backbone_config=swin("stage1",
       "stage2", "stage3", "stage4"), decoder_config=dict(model_type="detr", d_model=16, encoder_layers=1,
       decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=16,
       decoder_ffn_dim=16, num_queries=5), fpn_feature_size=32, mask_feature_size=32),
    hf("segmentation", "OneFormerForUniversalSegmentation",
       lambda: Inputs(kwargs={"pixel_values": torch.rand(1, 3, 64, 64), "task_inputs": torch.randint(1, 90,
       (1, 8))}), backbone_config=swin("stage1", "stage2", "stage3", "stage4"), conv_dim=32, mask_dim=32,
       hidden_dim=32, encoder_feedforward_dim=32, dim_feedforward=32, encoder_layers=1, decoder_layers=2,
       num_attention_heads=2, num_queries=5, text_encoder_width=32, text_encoder_context_length=8,
       text_encoder_num_layers=1, text_encoder_vocab_size=VOCABULARY, text_encoder_n_ctx=2, task_seq_len=8,
       query_dec_layers=1),
    hf("segmentation", "SamModel", points(64), vision_config=vit(image_size=64, patch_size=8,
       output_channels=16, global_attn_indexes=[1], window_size=4, mlp_dim=64, num_pos_feats=8),
       prompt_encoder_config=dict(hidden_size=16, image_size=64, patch_size=8, mask_input_channels=8),
       mask_decoder_config=dict(hidden_size=16, mlp_dim=32, num_hidden_layers=1, num_attention_heads=2,
       iou_head_hidden_dim=16)),
    hf("segmentation", "Sam2Model", points(64),
       vision_config=dict(backbone_config=dict(model_type="sam2_hiera_det_model", hidden_size=16,
       image_size=[64, 64], blocks_per_stage=[1, 1, 2, 1], embed_dim_per_stage=[16, 32, 48, 64],
       num_attention_heads_per_stage=[1, 2, 2, 4], window_size_per_stage=[8, 4, 4, 4],
       global_attention_blocks=[3], window_positional_embedding_background_size=[4, 4],
       num_query_pool_stages=3), backbone_channel_list=[64, 48, 32, 16], backbone_feature_sizes=[[16, 16],
       [8, 8], [4, 4]], fpn_hidden_size=32), prompt_encoder_config=dict(hidden_size=32, image_size=64,
       patch_size=16, mask_input_channels=8), mask_decoder_config=dict(hidden_size=32, mlp_dim=32,
       num_hidden_layers=1, num_attention_heads=2, iou_head_hidden_dim=16)),
    hf("segmentation", "SegformerForSemanticSegmentation", image(64), hidden_sizes=[8, 16, 24, 32],
       depths=[1, 1, 1, 1], num_attention_heads=[1, 2, 2, 4], decoder_hidden_size=16),
    hf("segmentation", "UperNetForSemanticSegmentation", image(64),
       backbone_config=dict(model_type="convnext", hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1],
       out_features=["stage1", "stage2", "stage3", "stage4"]), hidden_size=16, pool_scales=[1, 2],
       auxiliary_in_channels=24, auxiliary_channels=8),
]

DENSE = [
    hf("dense prediction", "DepthAnythingForDepthEstimation", image(),
       backbone_config=dict(model_type="dinov2", **vit(num_hidden_layers=4, apply_layernorm=True,
       reshape_hidden_states=False, out_features=["stage1", "stage2", "stage3", "stage4"])), patch_size=8,
       reassemble_hidden_size=32, neck_hidden_sizes=[8, 8, 16, 16], fusion_hidden_size=8,
       head_hidden_size=8),
    hf("dense prediction", "DPTForDepthEstimation", image(), **vit(num_hidden_layers=4,
       backbone_out_indices=[0, 1, 2, 3], neck_hidden_sizes=[8, 8, 16, 16], fusion_hidden_size=8,
       is_hybrid=False)),
    hf("dense prediction", "GLPNForDepthEstimation", image(64), hidden_sizes=[8, 16, 24, 32], depths=[1, 1,
       1, 1], num_attention_heads=[1, 2, 2, 4], decoder_hidden_size=16),
    hf("dense prediction", "SuperPointForKeypointDetection", image(64, 1), encoder_hidden_sizes=[8, 8, 16,
       16], decoder_hidden_size=16, descriptor_decoder_dim=16),
    hf("dense prediction", "Swin2SRForImageSuperResolution", image(16, 1), image_size=16, embed_dim=12,
       depths=[1, 1], num_heads=[2, 2], window_size=4, upscale=2),
    hf("dense prediction", "VitMatteForImageMatting", lambda: Inputs(kwargs={"pixel_values": torch.rand(1,
       4, 32, 32)}), backbone_config=dict(model_type="vitdet", hidden_size=32, num_hidden_layers=2,
       num_attention_heads=4, image_size=32, patch_size=16, num_channels=4, out_features=["stage2"]),
       hidden_size=32, fusion_hidden_sizes=[8, 16, 24, 32], convstream_hidden_sizes=[8, 16, 24]),
    hf("dense prediction", "VitPoseForPoseEstimation", image(32),
       backbone_config=dict(model_type="vitpose_backbone", image_size=[32, 32], patch_size=[8, 8],
       hidden_size=32, num_hidden_layers=2, num_attention_heads=4, out_features=["stage2"]), num_labels=5),
]

VIDEO = [
    hf("video", "TimesformerModel", clip(), **vit(num_frames=4)),
    hf("video", "VideoMAEModel", clip(), **vit(num_frames=4, tubelet_size=2)),
    hf("video", "VivitModel", clip(), **vit(num_frames=4, tubelet_size=[2, 8, 8])),
    hf("video", "VJEPA2Model", lambda: Inputs(kwargs={"pixel_values_videos": torch.rand(1, 4, 3, 32, 32)}),
       patch_size=8, crop_size=32, frames_per_clip=4, tubelet_size=2, hidden_size=48, num_attention_heads=4,
       num_hidden_layers=2, pred_hidden_size=24, pred_num_attention_heads=2, pred_num_hidden_layers=2),
]
# fmt: on

ENTRIES = [*BACKBONES, *DETECTORS, *SEGMENTERS, *DENSE, *VIDEO]
