"""transformers: speech, several modalities, time series."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tests.zoo.entry import Inputs
from tests.zoo.transformers_text import VOCABULARY, grouped, hf, model_sizes, sizes, text, tokens
from tests.zoo.transformers_vision import MAYBE_TEXT, image_and_query, vit


def waveform() -> Inputs:
    return Inputs(kwargs={"input_values": torch.randn(1, 1600)})


def sound(length: int = 800) -> Callable[[], Inputs]:
    """A waveform with a channel, as codecs take it."""
    return lambda: Inputs(kwargs={"input_values": torch.randn(1, 1, length)})


def features(frames: int, bins: int) -> Callable[[], Inputs]:
    return lambda: Inputs(kwargs={"input_features": torch.randn(1, frames, bins)})


def features_and_text(frames: int, bins: int) -> Callable[[], Inputs]:
    return lambda: Inputs(
        kwargs={"input_features": torch.randn(1, frames, bins), "decoder_input_ids": tokens(1, 4)}
    )


def wav2vec(**options: Any) -> dict[str, Any]:
    convolutions = dict(conv_dim=[16, 16, 16], conv_stride=[5, 2, 2], conv_kernel=[10, 3, 2])
    positions = dict(num_conv_pos_embeddings=8, num_conv_pos_embedding_groups=2, num_feat_extract_layers=3)
    return sizes() | convolutions | positions | options


def images_in_text(count: int, token: int = 98, **more: Any) -> Callable[[], Inputs]:
    """A text in which `count` tokens stand for the parts of a picture."""

    def make() -> Inputs:
        ids = torch.cat([tokens(1, 3) - 4, torch.full((1, count), token), tokens(1, 3) - 4], dim=1)
        made = {key: value() for key, value in more.items()}
        return Inputs(kwargs={"input_ids": ids, "attention_mask": torch.ones_like(ids), **made})

    return make


def picture(size: int = 32) -> Callable[[], torch.Tensor]:
    return lambda: torch.rand(1, 3, size, size)


def llama(**options: Any) -> dict[str, Any]:
    return dict(model_type="llama", **grouped(**options))


# fmt: off
SPEECH = [
    hf("speech", "ASTModel", lambda: Inputs(kwargs={"input_values": torch.randn(1, 32, 16)}),
       **vit(patch_size=4, max_length=32, num_mel_bins=16, frequency_stride=4, time_stride=4)),
    hf("speech", "ClapModel", lambda: Inputs(kwargs={"input_features": torch.randn(1, 1, 64, 16),
       "input_ids": tokens(1, 6), "is_longer": torch.tensor([[False]])}),
       text_config=sizes(projection_dim=32), audio_config=dict(patch_embeds_hidden_size=16, hidden_size=32,
       spec_size=64, num_mel_bins=16, depths=[1, 1], num_attention_heads=[2, 2], window_size=4,
       patch_size=2, patch_stride=2, projection_dim=32), projection_dim=32),
    hf("speech", "DacModel", sound(), encoder_hidden_size=8, downsampling_ratios=[2, 4],
       decoder_hidden_size=16, n_codebooks=2, codebook_size=16, codebook_dim=4),
    hf("speech", "Data2VecAudioModel", waveform, **wav2vec(num_conv_pos_embeddings=2,
       conv_pos_kernel_size=3)),
    hf("speech", "EncodecModel", sound(), target_bandwidths=[64.0], sampling_rate=24000, num_filters=4,
       hidden_size=16, codebook_size=16, codebook_dim=16, upsampling_ratios=[2, 2], num_lstm_layers=1),
    hf("speech", "FastSpeech2ConformerModel", lambda: Inputs(kwargs={"input_ids": tokens(1, 6) % 30}),
       vocab_size=40, hidden_size=32, encoder_layers=1, decoder_layers=1, encoder_num_attention_heads=2,
       decoder_num_attention_heads=2, encoder_linear_units=32, decoder_linear_units=32,
       duration_predictor_channels=16, energy_predictor_channels=16, pitch_predictor_channels=16,
       speech_decoder_postnet_units=16, num_mel_bins=8),
    hf("speech", "HubertModel", waveform, **wav2vec()),
    hf("speech", "MimiModel", sound(640), num_filters=4, hidden_size=16, codebook_size=16, codebook_dim=8,
       vector_quantization_hidden_dimension=8, num_quantizers=4, upsampling_ratios=[4, 2],
       intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2, head_dim=8,
       upsample_groups=16),
    hf("speech", "MoonshineForConditionalGeneration", lambda: Inputs(kwargs={"input_values": torch.randn(1,
       1600), "decoder_input_ids": tokens(1, 4)}), vocab_size=VOCABULARY, hidden_size=32,
       intermediate_size=64, encoder_num_hidden_layers=2, decoder_num_hidden_layers=2,
       encoder_num_attention_heads=4, decoder_num_attention_heads=4),
    hf("speech", "MusicgenMelodyForCausalLM", lambda: Inputs(kwargs={"input_ids": tokens(4, 6) % 30}),
       vocab_size=32, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, ffn_dim=64,
       num_codebooks=4),
    hf("speech", "SEWModel", waveform, **wav2vec(squeeze_factor=2)),
    hf("speech", "Speech2TextForConditionalGeneration", features_and_text(32, 16),
       **model_sizes(input_feat_per_channel=16, conv_channels=16, num_conv_layers=2, conv_kernel_sizes=[5,
       5], max_source_positions=64, max_target_positions=32)),
    hf("speech", "SpeechT5ForTextToSpeech", lambda: Inputs(kwargs={"input_ids": tokens(1, 6),
       "decoder_input_values": torch.randn(1, 4, 8), "speaker_embeddings": torch.randn(1, 16)}),
       vocab_size=VOCABULARY, hidden_size=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
       decoder_attention_heads=4, encoder_ffn_dim=32, decoder_ffn_dim=32, num_mel_bins=8,
       speech_decoder_prenet_units=16, speech_decoder_postnet_units=16, speaker_embedding_dim=16,
       reduction_factor=2),
    hf("speech", "UniSpeechSatModel", waveform, **wav2vec()),
    hf("speech", "UnivNetModel", lambda: Inputs(kwargs={"input_features": torch.randn(1, 8, 16)}),
       model_in_channels=8, model_hidden_channels=8, num_mel_bins=16, resblock_kernel_sizes=[3],
       resblock_stride_sizes=[4], resblock_dilation_sizes=[[1, 3]], kernel_predictor_num_blocks=1,
       kernel_predictor_hidden_channels=8),
    hf("speech", "VitsModel", lambda: Inputs(kwargs={"input_ids": tokens(1, 6) % 30}), hidden_size=32,
       num_hidden_layers=1, num_attention_heads=2, ffn_dim=32, flow_size=32, spectrogram_bins=17,
       upsample_initial_channel=32, upsample_rates=[2, 2], upsample_kernel_sizes=[4, 4],
       resblock_kernel_sizes=[3], resblock_dilation_sizes=[[1, 3]], prior_encoder_num_flows=2,
       prior_encoder_num_wavenet_layers=2, posterior_encoder_num_wavenet_layers=2,
       duration_predictor_filter_channels=16),
    hf("speech", "Wav2Vec2ForCTC", waveform, **wav2vec()),
    hf("speech", "Wav2Vec2BertModel", features(16, 32), **sizes(feature_projection_input_dim=32)),
    hf("speech", "Wav2Vec2ConformerModel", waveform, **wav2vec(position_embeddings_type="relative")),
    hf("speech", "WavLMModel", waveform, **wav2vec()),
    hf("speech", "WhisperForConditionalGeneration", features_and_text(16, 32),
       **model_sizes(num_mel_bins=16, max_source_positions=16, max_target_positions=16)),
]

MULTIMODAL = [
    hf("multimodal", "AlignModel", image_and_query(64), text_config=sizes(),
       vision_config=dict(image_size=64, kernel_sizes=[3, 3], hidden_dim=64, in_channels=[32, 16],
       out_channels=[16, 32], strides=[1, 2], num_block_repeats=[1, 1], expand_ratios=[1, 6],
       depthwise_padding=[], width_coefficient=1.0, depth_coefficient=1.0), projection_dim=32),
    hf("multimodal", "BlipModel", image_and_query(32), text_config=sizes(), vision_config=vit(),
       projection_dim=32),
    hf("multimodal", "Blip2ForConditionalGeneration", images_in_text(4, pixel_values=picture()),
       vision_config=vit(), qformer_config=sizes(encoder_hidden_size=32), text_config=dict(model_type="opt",
       **MAYBE_TEXT, ffn_dim=64, word_embed_proj_dim=32, max_position_embeddings=64), num_query_tokens=4,
       image_token_index=98),
    hf("multimodal", "BridgeTowerModel", image_and_query(32), hidden_size=64, num_hidden_layers=2,
       num_attention_heads=4, text_config=sizes(hidden_size=64), vision_config=dict(hidden_size=64,
       num_hidden_layers=2, patch_size=8, image_size=32)),
    hf("multimodal", "ChineseCLIPModel", image_and_query(32), text_config=sizes(), vision_config=vit(),
       projection_dim=32),
    hf("multimodal", "CLIPModel", image_and_query(32), text_config=sizes(max_position_embeddings=16),
       vision_config=vit(), projection_dim=32),
    hf("multimodal", "FlavaModel", image_and_query(32), text_config=sizes(), image_config=vit(),
       multimodal_config=vit(), hidden_size=32, projection_dim=32,
       image_codebook_config=dict(hidden_size=16)),
    hf("multimodal", "FuyuForCausalLM", text, **grouped(text_config=dict(model_type="persimmon",
       **grouped()), image_token_id=98)),
    hf("multimodal", "GitModel", image_and_query(32), vision_config=vit(), **sizes()),
    hf("multimodal", "GroupViTModel", image_and_query(32), text_config=sizes(max_position_embeddings=16),
       vision_config=dict(hidden_size=32, num_attention_heads=4, intermediate_size=64, image_size=32,
       patch_size=8, depths=[1, 1, 1], num_group_tokens=[4, 2, 0], num_output_groups=[4, 2, 2]),
       projection_dim=32, projection_intermediate_dim=32),
    hf("multimodal", "Idefics3ForConditionalGeneration", images_in_text(4,
       pixel_values=lambda: torch.rand(1, 1, 3, 32, 32)), vision_config=vit(), text_config=llama(),
       image_token_id=98, scale_factor=2, pad_token_id=0),
    hf("multimodal", "InstructBlipForConditionalGeneration", images_in_text(4, pixel_values=picture(),
       qformer_input_ids=lambda: tokens(1, 5)), vision_config=vit(),
       qformer_config=sizes(encoder_hidden_size=32), text_config=dict(model_type="opt", **MAYBE_TEXT,
       ffn_dim=64, word_embed_proj_dim=32, max_position_embeddings=64), num_query_tokens=4,
       image_token_index=98),
    hf("multimodal", "InternVLForConditionalGeneration", images_in_text(4, pixel_values=picture()),
       vision_config=vit(image_size=[32, 32], patch_size=[8, 8]), text_config=dict(model_type="qwen2",
       **grouped()), image_token_id=98, downsample_ratio=0.5),
    hf("multimodal", "Kosmos2Model", lambda: Inputs(kwargs={"pixel_values": torch.rand(1, 3, 32, 32),
       "input_ids": tokens(1, 8), "image_embeds_position_mask": torch.tensor([[False, True, True, True,
       True, False, False, False]])}), text_config=dict(vocab_size=VOCABULARY, embed_dim=32, layers=2,
       attention_heads=4, ffn_dim=64, max_position_embeddings=64), vision_config=vit(), latent_query_num=4),
    hf("multimodal", "LayoutLMv3Model", lambda: Inputs(kwargs={"pixel_values": torch.rand(1, 3, 32, 32),
       "input_ids": tokens(1, 6), "bbox": torch.arange(6).view(1, 6, 1) * torch.ones(4, dtype=torch.long)}),
       **sizes(input_size=32, patch_size=8, coordinate_size=6, shape_size=4, max_2d_position_embeddings=64,
       rel_pos_bins=8, rel_2d_pos_bins=8)),
    hf("multimodal", "LlavaForConditionalGeneration", images_in_text(16, pixel_values=picture()),
       vision_config=dict(model_type="clip_vision_model", **vit()), text_config=llama(),
       image_token_index=98),
    hf("multimodal", "LlavaNextForConditionalGeneration", images_in_text(24,
       pixel_values=lambda: torch.rand(1, 5, 3, 32, 32), image_sizes=lambda: torch.tensor([[64, 64]])),
       vision_config=dict(model_type="clip_vision_model", **vit(patch_size=16)),
       text_config=llama(max_position_embeddings=128), image_token_index=98, image_grid_pinpoints=[[64,
       64]]),
    hf("multimodal", "LxmertModel", lambda: Inputs(kwargs={"input_ids": tokens(1, 6),
       "visual_feats": torch.randn(1, 4, 16), "visual_pos": torch.rand(1, 4, 4)}),
       **sizes(visual_feat_dim=16, l_layers=1, x_layers=1, r_layers=1)),
    hf("multimodal", "MllamaForConditionalGeneration", images_in_text(1, pixel_values=lambda: torch.rand(1,
       1, 4, 3, 32, 32), aspect_ratio_ids=lambda: torch.tensor([[1]]),
       aspect_ratio_mask=lambda: torch.tensor([[[1, 0, 0, 0]]]), cross_attention_mask=lambda: torch.ones(1,
       7, 1, 4, dtype=torch.long)), vision_config=dict(hidden_size=32, num_hidden_layers=2,
       num_global_layers=1, num_attention_heads=4, attention_heads=4, intermediate_size=64, image_size=32,
       patch_size=8, vision_output_dim=64, intermediate_layers_indices=[0], supported_aspect_ratios=[[1, 1],
       [1, 2]], max_num_tiles=4), text_config=grouped(cross_attention_layers=[1], num_hidden_layers=2),
       image_token_index=98),
    hf("multimodal", "PaliGemmaForConditionalGeneration", images_in_text(16, pixel_values=picture()),
       vision_config=dict(model_type="siglip_vision_model", **vit(projection_dim=32)),
       text_config=dict(model_type="gemma", **grouped(head_dim=8)), projection_dim=32,
       image_token_index=98),
    hf("multimodal", "Pix2StructForConditionalGeneration",
       lambda: Inputs(kwargs={"flattened_patches": torch.cat([torch.arange(1, 7).float().repeat(2,
       1).T[None], torch.randn(1, 6, 48)], dim=2), "decoder_input_ids": tokens(1, 4)}),
       vision_config=dict(hidden_size=32, patch_embed_hidden_size=48, d_ff=64, d_kv=8, num_hidden_layers=2,
       num_attention_heads=4, seq_len=64), text_config=dict(vocab_size=VOCABULARY, hidden_size=32, d_kv=8,
       d_ff=64, num_layers=2, num_heads=4)),
    hf("multimodal", "Qwen2AudioForConditionalGeneration", images_in_text(4,
       input_features=lambda: torch.randn(1, 16, 16), feature_attention_mask=lambda: torch.ones(1, 16,
       dtype=torch.long)), audio_config=dict(model_type="qwen2_audio_encoder", d_model=32, encoder_layers=2,
       encoder_attention_heads=4, encoder_ffn_dim=64, num_mel_bins=16, max_source_positions=8),
       text_config=dict(model_type="qwen2", **grouped()), audio_token_index=98),
    hf("multimodal", "Qwen2VLForConditionalGeneration", images_in_text(4,
       pixel_values=lambda: torch.randn(16, 3 * 2 * 4 * 4), image_grid_thw=lambda: torch.tensor([[1, 4,
       4]]), mm_token_type_ids=lambda: torch.tensor([[0] * 3 + [1] * 4 + [0] * 3])),
       vision_config=dict(depth=2, embed_dim=32, hidden_size=32, num_heads=4, patch_size=4,
       spatial_merge_size=2, temporal_patch_size=2, mlp_ratio=2),
       text_config=grouped(rope_parameters=dict(rope_type="default", mrope_section=[1, 1, 2],
       rope_theta=1e4)), image_token_id=98, vision_start_token_id=97, video_token_id=96,
       vision_end_token_id=95),
    hf("multimodal", "SiglipModel", image_and_query(32), text_config=sizes(projection_size=32),
       vision_config=vit()),
    hf("multimodal", "ViltModel", image_and_query(32), **sizes(image_size=32, patch_size=8,
       max_image_length=-1)),
    hf("multimodal", "VisualBertModel", lambda: Inputs(kwargs={"input_ids": tokens(1, 6),
       "visual_embeds": torch.randn(1, 4, 16), "visual_attention_mask": torch.ones(1, 4)}),
       **sizes(visual_embedding_dim=16)),
    hf("multimodal", "XCLIPModel", lambda: Inputs(kwargs={"pixel_values": torch.rand(1, 4, 3, 32, 32),
       "input_ids": tokens(2, 6), "attention_mask": torch.ones(2, 6, dtype=torch.long)}),
       text_config=sizes(max_position_embeddings=16), vision_config=vit(num_frames=4, mit_hidden_size=32,
       mit_intermediate_size=64, mit_num_attention_heads=4, mit_num_hidden_layers=1), projection_dim=32,
       prompt_layers=1, prompt_num_attention_heads=4),
]
# fmt: on


def past_and_future() -> Inputs:
    return Inputs(
        kwargs={
            "past_values": torch.randn(2, 20),
            "past_time_features": torch.randn(2, 20, 2),
            "past_observed_mask": torch.ones(2, 20),
            "future_values": torch.randn(2, 4),
            "future_time_features": torch.randn(2, 4, 2),
        }
    )


def forecaster(**options: Any) -> dict[str, Any]:
    layers = dict(encoder_layers=1, decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2)
    widths = dict(d_model=16, encoder_ffn_dim=16, decoder_ffn_dim=16, num_time_features=2)
    lengths = dict(prediction_length=4, context_length=16, lags_sequence=[1, 2, 4])
    return layers | widths | lengths | options


def series() -> Inputs:
    return Inputs(kwargs={"past_values": torch.randn(2, 16, 2)})


def trajectory() -> Inputs:
    return Inputs(
        kwargs={
            "states": torch.randn(1, 4, 5),
            "actions": torch.randn(1, 4, 3),
            "rewards": torch.randn(1, 4, 1),
            "returns_to_go": torch.randn(1, 4, 1),
            "timesteps": torch.arange(4)[None],
            "attention_mask": torch.ones(1, 4),
        }
    )


# fmt: off
SERIES = [
    hf("time series", "AutoformerForPrediction", past_and_future, **forecaster(moving_average=3,
       label_length=4)),
    hf("time series", "DecisionTransformerModel", trajectory, state_dim=5, act_dim=3, hidden_size=32,
       n_layer=2, n_head=4),
    hf("time series", "InformerForPrediction", past_and_future, **forecaster(sampling_factor=2)),
    hf("time series", "PatchTSMixerForPrediction", series, context_length=16, patch_length=4,
       patch_stride=4, num_input_channels=2, prediction_length=4, d_model=16, num_layers=2),
    hf("time series", "PatchTSTForPrediction", series, context_length=16, patch_length=4, patch_stride=4,
       num_input_channels=2, prediction_length=4, d_model=16, num_hidden_layers=2, num_attention_heads=2,
       ffn_dim=32),
    hf("time series", "TimeSeriesTransformerForPrediction", past_and_future, **forecaster()),
    hf("time series", "TimesFmModelForPrediction", lambda: Inputs(kwargs={"past_values": [torch.randn(32),
       torch.randn(20)], "freq": [0, 1]}), patch_length=8, context_length=32, horizon_length=8,
       num_hidden_layers=2, hidden_size=32, intermediate_size=32, head_dim=8, num_attention_heads=4),
]
# fmt: on

ENTRIES = [*SPEECH, *MULTIMODAL, *SERIES]
