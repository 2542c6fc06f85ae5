"""transformers: language models."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import transformers

from tests.zoo.entry import Entry, Inputs, training, under

VOCABULARY = 99
KNOWN = {
    "IBertModel": ("host_round_trip", "splits numbers into mantissa and exponent by numpy"),
    "LlavaNextForConditionalGeneration": ("host_round_trip", "counts the parts of a picture in Python"),
    "VitsModel": (
        "unknown_origin",
        "calls `torch.IntTensor`, a legacy constructor",
    ),
}
"""Models of which a trace is rightly unverified: the reason, and what they do."""


def hf(family: str, name: str, inputs: Callable[[], Inputs], **options: Any) -> Entry:
    """A model class of transformers, built from its config with these options."""

    def build() -> torch.nn.Module:
        kind = getattr(transformers, name)
        return kind(kind.config_class(**deepcopy(options))).eval()  # configs take their parts out of dicts

    return Entry(name, "transformers", family, build, inputs, *KNOWN.get(name, ()))


def tokens(*shape: int) -> torch.Tensor:
    return torch.randint(5, VOCABULARY, shape or (2, 8))


def text() -> Inputs:
    mask = torch.ones(2, 8, dtype=torch.long)
    mask[1, 6:] = 0
    return Inputs(kwargs={"input_ids": tokens(), "attention_mask": mask})


def only_text() -> Inputs:
    return Inputs(kwargs={"input_ids": tokens()})


def text_to_text() -> Inputs:
    return Inputs(kwargs={**text().kwargs, "decoder_input_ids": tokens(2, 5)})


def long_text(length: int) -> Callable[[], Inputs]:
    return lambda: Inputs(kwargs={"input_ids": tokens(1, length)})


def sizes(**options: Any) -> dict[str, Any]:
    """The sizes as most configs name them."""
    usual = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64)
    return usual | dict(vocab_size=VOCABULARY, max_position_embeddings=64) | options


def grouped(**options: Any) -> dict[str, Any]:
    """The sizes of a decoder whose queries share keys."""
    return sizes(num_key_value_heads=2, pad_token_id=0, bos_token_id=1, eos_token_id=2) | options


def model_sizes(**options: Any) -> dict[str, Any]:
    """The sizes as BART and its kin name them."""
    layers = dict(encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4)
    widths = dict(d_model=32, encoder_ffn_dim=64, decoder_ffn_dim=64, max_position_embeddings=64)
    special = dict(pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=2)
    return layers | widths | special | dict(vocab_size=VOCABULARY) | options


def t5_sizes(**options: Any) -> dict[str, Any]:
    usual = dict(vocab_size=VOCABULARY, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4)
    return usual | dict(pad_token_id=0, decoder_start_token_id=0) | options


# fmt: off
ENCODERS = [
    hf("encoder", "AlbertModel", text, **sizes(embedding_size=16)),
    hf("encoder", "BertForMaskedLM", text, **sizes()),
    hf("encoder", "BigBirdModel", long_text(64), **sizes(block_size=4, num_random_blocks=1)),
    hf("encoder", "CanineModel", long_text(16), **sizes(local_transformer_stride=8, num_hash_buckets=100)),
    hf("encoder", "ConvBertModel", text, **sizes(embedding_size=32)),
    hf("encoder", "DebertaModel", text, **sizes(relative_attention=True, pos_att_type=["c2p", "p2c"])),
    hf("encoder", "DebertaV2Model", text, **sizes(relative_attention=True, position_buckets=8,
       pos_att_type=["c2p", "p2c"])),
    hf("encoder", "DistilBertModel", text, vocab_size=VOCABULARY, dim=32, n_layers=2, n_heads=4,
       hidden_dim=64),
    hf("encoder", "ElectraForPreTraining", text, **sizes(embedding_size=16)),
    hf("encoder", "EsmModel", text, **sizes(pad_token_id=1, mask_token_id=4,
       position_embedding_type="rotary")),
    hf("encoder", "EuroBertModel", text, **grouped()),
    hf("encoder", "FNetModel", only_text, **sizes()),
    hf("encoder", "FunnelModel", text, vocab_size=VOCABULARY, block_sizes=[1, 1], d_model=32, n_head=4,
       d_head=8, d_inner=64),
    hf("encoder", "IBertModel", text, **sizes(quant_mode=True)),
    hf("encoder", "LongformerModel", text, **sizes(attention_window=[4, 4])),
    hf("encoder", "LukeModel", text, **sizes(entity_vocab_size=20, entity_emb_size=16)),
    hf("encoder", "MobileBertModel", text, **sizes(embedding_size=16, intra_bottleneck_size=16)),
    hf("encoder", "ModernBertModel", text, **sizes(pad_token_id=0, local_attention=4)),
    hf("encoder", "MPNetModel", text, **sizes()),
    hf("encoder", "NystromformerModel", long_text(16), **sizes(num_landmarks=4, segment_means_seq_len=16)),
    hf("encoder", "PerceiverModel", lambda: Inputs((torch.randn(2, 10, 16),)), d_model=16, d_latents=32,
       num_latents=4, num_self_attends_per_block=2, num_self_attention_heads=4,
       num_cross_attention_heads=2),
    hf("encoder", "ReformerModel", long_text(16), **sizes(attn_layers=["local", "lsh"], axial_pos_shape=[4,
       4], axial_pos_embds_dim=[8, 24], attention_head_size=8, feed_forward_size=64, num_buckets=2,
       num_hashes=2, local_attn_chunk_length=4, lsh_attn_chunk_length=4, is_decoder=True)),
    hf("encoder", "RoFormerModel", text, **sizes(embedding_size=16)),
    hf("encoder", "SqueezeBertModel", text, **sizes(embedding_size=32)),
    hf("encoder", "XLMModel", text, vocab_size=VOCABULARY, emb_dim=32, n_layers=2, n_heads=4,
       max_position_embeddings=64),
    hf("encoder", "XmodModel", text, **sizes(languages=["en", "de"], default_language="en")),
    hf("encoder", "YosoModel", text, **sizes(use_expectation=True)),
]

DECODERS = [
    hf("decoder", "BloomForCausalLM", text, vocab_size=VOCABULARY, hidden_size=32, n_layer=2, n_head=4),
    hf("decoder", "BioGptForCausalLM", text, **sizes()),
    hf("decoder", "CodeGenForCausalLM", text, vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4,
       rotary_dim=4),
    hf("decoder", "CohereForCausalLM", text, **grouped()),
    hf("decoder", "CTRLModel", text, vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4, dff=64),
    hf("decoder", "DiffLlamaForCausalLM", text, **grouped()),
    hf("decoder", "FalconForCausalLM", text, **sizes(alibi=True)),
    hf("decoder", "Gemma2ForCausalLM", text, **grouped(head_dim=8, sliding_window=4)),
    hf("decoder", "Gemma3ForCausalLM", text, **grouped(head_dim=8, sliding_window=4)),
    hf("decoder", "GPT2LMHeadModel", text, vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4),
    hf("decoder", "GPTBigCodeForCausalLM", text, vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4),
    hf("decoder", "GPTJForCausalLM", text, vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4,
       rotary_dim=4),
    hf("decoder", "GPTNeoForCausalLM", text, vocab_size=VOCABULARY, hidden_size=32, num_layers=2,
       num_heads=4, attention_types=[[["global", "local"], 1]], window_size=4),
    hf("decoder", "GPTNeoXForCausalLM", text, **sizes()),
    hf("decoder", "GraniteForCausalLM", text, **grouped()),
    hf("decoder", "LlamaForCausalLM", text, **grouped()),
    hf("decoder", "MistralForCausalLM", text, **grouped(sliding_window=4)),
    hf("decoder", "MptForCausalLM", text, vocab_size=VOCABULARY, d_model=32, n_layers=2, n_heads=4),
    hf("decoder", "NanoChatForCausalLM", text, **grouped()),
    hf("decoder", "Olmo2ForCausalLM", text, **grouped()),
    hf("decoder", "OPTForCausalLM", text, vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2,
       num_attention_heads=4, ffn_dim=64, word_embed_proj_dim=16, max_position_embeddings=64),
    hf("decoder", "Phi3ForCausalLM", text, **grouped()),
    hf("decoder", "Qwen3ForCausalLM", text, **grouped(head_dim=8)),
    hf("decoder", "StableLmForCausalLM", text, **grouped()),
    hf("decoder", "XGLMForCausalLM", text, vocab_size=VOCABULARY, d_model=32, num_layers=2,
       attention_heads=4, ffn_dim=64, max_position_embeddings=64),
    hf("decoder", "XLNetLMHeadModel", text, vocab_size=VOCABULARY, d_model=32, n_layer=2, n_head=4,
       d_inner=64),
]

EXPERTS = [
    hf("mixture of experts", "DbrxForCausalLM", text, vocab_size=VOCABULARY, d_model=32, n_heads=4,
       n_layers=2, max_seq_len=64, attn_config={"kv_n_heads": 2, "clip_qkv": 8, "rope_theta": 1e4},
       ffn_config={"ffn_hidden_size": 32, "moe_num_experts": 4, "moe_top_k": 2}),
    hf("mixture of experts", "DeepseekV3ForCausalLM", text, **grouped(num_key_value_heads=4,
       moe_intermediate_size=16, n_routed_experts=8, n_group=2, topk_group=1, num_experts_per_tok=2,
       first_k_dense_replace=1, kv_lora_rank=8, q_lora_rank=16, qk_rope_head_dim=4, qk_nope_head_dim=8,
       v_head_dim=8)),
    hf("mixture of experts", "DogeForCausalLM", text, **grouped(is_moe=True, num_experts=16,
       num_experts_per_tok=4)),
    hf("mixture of experts", "Glm4MoeForCausalLM", text, **grouped(moe_intermediate_size=16,
       n_routed_experts=4, num_experts_per_tok=2, first_k_dense_replace=1, head_dim=8)),
    hf("mixture of experts", "GptOssForCausalLM", text, **grouped(head_dim=8, num_local_experts=4,
       num_experts_per_tok=2, sliding_window=4)),
    hf("mixture of experts", "GraniteMoeForCausalLM", text, **grouped(num_local_experts=4,
       num_experts_per_tok=2)),
    hf("mixture of experts", "JetMoeForCausalLM", text, **grouped(num_key_value_heads=2, kv_channels=8,
       num_local_experts=4, num_experts_per_tok=2)),
    hf("mixture of experts", "Llama4ForCausalLM", text, **grouped(head_dim=8, intermediate_size_mlp=64,
       num_local_experts=4, num_experts_per_tok=1, attention_chunk_size=8)),
    hf("mixture of experts", "MixtralForCausalLM", text, **grouped(num_local_experts=4,
       num_experts_per_tok=2)),
    hf("mixture of experts", "NllbMoeForConditionalGeneration", text_to_text, **model_sizes(num_experts=4,
       encoder_sparse_step=2, decoder_sparse_step=2, expert_capacity=16)),
    hf("mixture of experts", "OlmoeForCausalLM", text, **grouped(num_experts=4, num_experts_per_tok=2)),
    hf("mixture of experts", "PhimoeForCausalLM", text, **grouped(num_local_experts=4,
       num_experts_per_tok=2)),
    hf("mixture of experts", "Qwen2MoeForCausalLM", text, **grouped(moe_intermediate_size=16,
       shared_expert_intermediate_size=32, num_experts=4, num_experts_per_tok=2)),
    hf("mixture of experts", "SwitchTransformersForConditionalGeneration", text_to_text,
       **t5_sizes(num_experts=4, num_sparse_encoder_layers=1, num_sparse_decoder_layers=1,
       expert_capacity=8)),
]

STATES = [
    hf("state space", "BambaForCausalLM", text, **grouped(mamba_n_heads=8, mamba_d_head=8, mamba_d_state=8,
       mamba_chunk_size=4, attn_layer_indices=[1])),
    hf("state space", "FalconH1ForCausalLM", text, **grouped(head_dim=8, mamba_d_ssm=64, mamba_n_heads=8,
       mamba_d_head=8, mamba_d_state=8, mamba_chunk_size=4)),
    hf("state space", "FalconMambaForCausalLM", text, vocab_size=VOCABULARY, hidden_size=32,
       num_hidden_layers=2, state_size=8),
    hf("state space", "JambaForCausalLM", text, **grouped(num_experts=4, attn_layer_period=2,
       attn_layer_offset=1, expert_layer_period=2, expert_layer_offset=1, mamba_d_state=8, mamba_dt_rank=4,
       use_mamba_kernels=False)),
    hf("state space", "Lfm2ForCausalLM", text, **grouped(layer_types=["conv", "full_attention"])),
    hf("state space", "MambaForCausalLM", text, vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2,
       state_size=8),
    hf("state space", "Mamba2ForCausalLM", text, vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2,
       state_size=8, num_heads=8, head_dim=8, n_groups=2, chunk_size=4),
    hf("state space", "NemotronHForCausalLM", text, **grouped(layers_block_type=["mamba", "attention",
       "moe"], mamba_num_heads=8, mamba_head_dim=8, ssm_state_size=8, n_groups=2, chunk_size=4, head_dim=8,
       n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=16,
       moe_shared_expert_intermediate_size=16)),
    hf("state space", "Zamba2ForCausalLM", text, **grouped(num_hidden_layers=3, num_key_value_heads=4,
       mamba_d_state=8, mamba_headdim=8, n_mamba_heads=8, mamba_ngroups=2, chunk_size=4, num_mem_blocks=1,
       layers_block_type=["mamba", "mamba", "hybrid"], use_mamba_kernels=False)),
    hf("recurrent", "Qwen3NextForCausalLM", text, **grouped(head_dim=8, layer_types=["linear_attention",
       "full_attention"], linear_num_value_heads=4, linear_num_key_heads=2, linear_key_head_dim=8,
       linear_value_head_dim=8, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16,
       shared_expert_intermediate_size=16)),
    hf("recurrent", "RecurrentGemmaForCausalLM", text, **grouped(num_hidden_layers=3, lru_width=32,
       attention_window_size=8)),
    hf("recurrent", "RwkvForCausalLM", only_text, vocab_size=VOCABULARY, hidden_size=32,
       num_hidden_layers=2),
    hf("recurrent", "xLSTMForCausalLM", only_text, vocab_size=VOCABULARY, hidden_size=64, num_blocks=2,
       num_heads=4, chunk_size=4, qk_dim_factor=1.0),
]
# fmt: on

ENCODER_DECODERS = [
    hf("encoder-decoder", "BartForConditionalGeneration", text_to_text, **model_sizes()),
    hf(
        "encoder-decoder",
        "BigBirdPegasusForConditionalGeneration",
        text_to_text,
        **model_sizes(block_size=4, num_random_blocks=1),
    ),
    hf("encoder-decoder", "BlenderbotForConditionalGeneration", text_to_text, **model_sizes()),
    hf(
        "encoder-decoder",
        "FSMTForConditionalGeneration",
        text_to_text,
        **model_sizes(langs=["en", "de"], src_vocab_size=VOCABULARY, tgt_vocab_size=VOCABULARY),
    ),
    hf(
        "encoder-decoder",
        "LEDForConditionalGeneration",
        text_to_text,
        **model_sizes(
            attention_window=4, max_encoder_position_embeddings=64, max_decoder_position_embeddings=64
        ),
    ),
    hf(
        "encoder-decoder",
        "LongT5ForConditionalGeneration",
        text_to_text,
        **t5_sizes(local_radius=3, encoder_attention_type="transient-global", global_block_size=4),
    ),
    hf("encoder-decoder", "M2M100ForConditionalGeneration", text_to_text, **model_sizes()),
    hf("encoder-decoder", "MarianMTModel", text_to_text, **model_sizes()),
    hf("encoder-decoder", "MBartForConditionalGeneration", text_to_text, **model_sizes()),
    hf(
        "encoder-decoder",
        "MvpForConditionalGeneration",
        text_to_text,
        **model_sizes(use_prompt=True, prompt_length=4, prompt_mid_dim=8),
    ),
    hf(
        "encoder-decoder",
        "PegasusXForConditionalGeneration",
        text_to_text,
        **model_sizes(block_size=4, num_global_tokens=2),
    ),
    hf(
        "encoder-decoder",
        "ProphetNetForConditionalGeneration",
        text_to_text,
        vocab_size=VOCABULARY,
        hidden_size=32,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        num_encoder_layers=2,
        num_decoder_layers=2,
        num_encoder_attention_heads=4,
        num_decoder_attention_heads=4,
        max_position_embeddings=64,
    ),
    hf("encoder-decoder", "T5ForConditionalGeneration", text_to_text, **t5_sizes()),
    hf(
        "encoder-decoder",
        "UMT5ForConditionalGeneration",
        text_to_text,
        **t5_sizes(feed_forward_proj="gated-gelu"),
    ),
]


class Generating(torch.nn.Module):
    """A language model that chooses three tokens, one after another."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        return self.model.generate(
            input_ids, attention_mask=attention_mask, max_new_tokens=3, do_sample=True, pad_token_id=0
        )


def generating(entry: Entry) -> Entry:
    return replace(entry, name=f"{entry.name}, generating", build=lambda: Generating(entry.build()))


def checkpointed(entry: Entry) -> Entry:
    def build() -> torch.nn.Module:
        model: Any = entry.build()
        model.gradient_checkpointing_enable()
        return model.train()

    return replace(entry, name=f"{entry.name}, checkpointed", build=build)


def settings(made: list[Entry]) -> list[Entry]:
    named = {entry.name: entry for entry in made}
    bfloat16 = partial(torch.autocast, "cpu", torch.bfloat16)
    return [
        training(named["BertForMaskedLM"]),
        training(named["T5ForConditionalGeneration"]),
        checkpointed(named["LlamaForCausalLM"]),
        generating(named["GPT2LMHeadModel"]),
        generating(named["MambaForCausalLM"]),
        generating(named["MixtralForCausalLM"]),
        under(named["LlamaForCausalLM"], "in bfloat16", bfloat16),
        under(named["BertForMaskedLM"], "without gradients", torch.no_grad),
        under(named["MixtralForCausalLM"], "in inference mode", torch.inference_mode),
    ]


ENTRIES = [*ENCODERS, *DECODERS, *EXPERTS, *STATES, *ENCODER_DECODERS]
ENTRIES += settings(ENTRIES)
