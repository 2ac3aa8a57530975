"""Small sentence-transformers folders of many architectures, with random weights and a tokenizer of bytes."""

from pathlib import Path
from typing import Any

VOCABULARY = 320
_SPECIAL = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2}
_COMMON = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
}
_ENCODER = {**_COMMON, "max_position_embeddings": 130}
_WITH_SPECIAL = {**_ENCODER, **_SPECIAL}
_DECODER = {**_COMMON, **_SPECIAL, "num_key_value_heads": 1, "max_position_embeddings": 256}
_HEADS = {**_DECODER, "head_dim": 16}
_T5 = {
    "vocab_size": VOCABULARY,
    "d_model": 32,
    "d_kv": 16,
    "d_ff": 64,
    "num_layers": 2,
    "num_heads": 2,
    "pad_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
}
_DEBERTA = {"relative_attention": True, "position_buckets": 16, "pos_att_type": ["p2c", "c2p"], "share_att_key": True}
_LOCAL = {"local_attention": 16, "cls_token_id": 0, "sep_token_id": 2}
_CHILD = {"vocab_size": VOCABULARY, "n_layer": 2, "n_head": 2}

# Class names of configurations in transformers, with their parameters; and models that they are typical of.
EXPORTED: dict[str, tuple[str, dict[str, Any]]] = {
    "ALBERT": ("AlbertConfig", {**_ENCODER, "embedding_size": 16}),
    "BART": (
        "BartConfig",
        {
            **{"vocab_size": VOCABULARY, "d_model": 32, "max_position_embeddings": 130, **_SPECIAL},
            **{f"{part}_{what}": 2 for part in ("encoder", "decoder") for what in ("layers", "attention_heads")},
            **{"encoder_ffn_dim": 64, "decoder_ffn_dim": 64},
        },
    ),
    "BERT (bge, gte, MiniLM)": ("BertConfig", _ENCODER),
    "BigBird": ("BigBirdConfig", {**_WITH_SPECIAL, "block_size": 16}),
    "BLOOM": ("BloomConfig", {**_CHILD, **_SPECIAL, "hidden_size": 32}),
    "CamemBERT": ("CamembertConfig", _WITH_SPECIAL),
    "ConvBERT": ("ConvBertConfig", {**_ENCODER, "embedding_size": 32}),
    "Data2Vec": ("Data2VecTextConfig", _WITH_SPECIAL),
    "DeBERTa": ("DebertaConfig", _ENCODER),
    "DeBERTa 2 and 3": ("DebertaV2Config", {**_ENCODER, **_DEBERTA, "norm_rel_ebd": "layer_norm"}),
    "DistilBERT": (
        "DistilBertConfig",
        {"vocab_size": VOCABULARY, "dim": 32, "hidden_dim": 64, "n_layers": 2, "n_heads": 2},
    ),
    "ELECTRA": ("ElectraConfig", {**_ENCODER, "embedding_size": 16}),
    "ESM": ("EsmConfig", {**_WITH_SPECIAL, "mask_token_id": 4}),
    "EuroBERT": ("EuroBertConfig", _HEADS),
    "ERNIE": ("ErnieConfig", _ENCODER),
    "Falcon": ("FalconConfig", {**_COMMON, **_SPECIAL, "max_position_embeddings": 256}),
    "Gemma": ("GemmaConfig", _HEADS),
    "Gemma 2": ("Gemma2Config", {**_HEADS, "sliding_window": 16}),
    "Gemma 3": ("Gemma3TextConfig", {**_HEADS, "sliding_window": 16}),
    "Gemma 3, bidirectional (EmbeddingGemma)": (
        "Gemma3TextConfig",
        {**_HEADS, "sliding_window": 16, "use_bidirectional_attention": True},
    ),
    "GPT-2": ("GPT2Config", {**_CHILD, "n_embd": 32, "n_positions": 130, "bos_token_id": 0, "eos_token_id": 2}),
    "GPT-NeoX": ("GPTNeoXConfig", _WITH_SPECIAL),
    "Granite": ("GraniteConfig", _DECODER),
    "GTE": ("GteConfig", _WITH_SPECIAL),
    "I-BERT": ("IBertConfig", _WITH_SPECIAL),
    "Jina 3": ("JinaEmbeddingsV3Config", _WITH_SPECIAL),
    "LFM2": ("Lfm2Config", {**_DECODER, "layer_types": ["conv", "full_attention"]}),
    "Llama": ("LlamaConfig", _HEADS),
    "LongT5": ("LongT5Config", {**_T5, "local_radius": 15}),
    "LUKE": ("LukeConfig", {**_WITH_SPECIAL, "entity_vocab_size": 16}),
    "Megatron": ("MegatronBertConfig", _ENCODER),
    "Mistral (e5-mistral)": ("MistralConfig", {**_HEADS, "sliding_window": 16}),
    "MobileBERT": ("MobileBertConfig", {**_ENCODER, "embedding_size": 32, "intra_bottleneck_size": 32}),
    "ModernBERT (gte-modernbert)": ("ModernBertConfig", {**_WITH_SPECIAL, **_LOCAL}),
    "ModernBERT decoder": ("ModernBertDecoderConfig", {**_WITH_SPECIAL, **_LOCAL}),
    "MPNet": ("MPNetConfig", _WITH_SPECIAL),
    "mT5": ("MT5Config", _T5),
    "Nomic": ("NomicBertConfig", _WITH_SPECIAL),
    "Nyströmformer": ("NystromformerConfig", _ENCODER),
    "OLMo 2": ("Olmo2Config", _DECODER),
    "OPT": ("OPTConfig", {**_WITH_SPECIAL, "ffn_dim": 64, "word_embed_proj_dim": 32}),
    "Phi": ("PhiConfig", _DECODER),
    "Phi 3": ("Phi3Config", _DECODER),
    "Qwen 2": ("Qwen2Config", _HEADS),
    "Qwen 3 (Qwen3-Embedding)": ("Qwen3Config", _HEADS),
    "RemBERT": ("RemBertConfig", {**_ENCODER, "input_embedding_size": 16, "output_embedding_size": 16}),
    "RoBERTa": ("RobertaConfig", _WITH_SPECIAL),
    "RoBERTa-PreLayerNorm": ("RobertaPreLayerNormConfig", _WITH_SPECIAL),
    "RoFormer": ("RoFormerConfig", {**_ENCODER, "embedding_size": 32}),
    "SmolLM 3": ("SmolLM3Config", _HEADS),
    "SqueezeBERT": ("SqueezeBertConfig", {**_ENCODER, "embedding_size": 32}),
    "StableLM": ("StableLmConfig", _DECODER),
    "StarCoder 2": ("Starcoder2Config", _DECODER),
    "T5 (gtr, sentence-t5)": ("T5Config", _T5),
    "UMT5": ("UMT5Config", _T5),
    "XLM-RoBERTa (multilingual-e5, bge-m3, arctic-embed 2)": ("XLMRobertaConfig", _WITH_SPECIAL),
    "XLNet": ("XLNetConfig", {**_CHILD, "d_model": 32, "d_inner": 64}),
}
# Architectures that cannot be exported, with the reason that the message gives.
REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "Cohere": ("CohereConfig", _HEADS, "the graph that PyTorch's tracer makes of this architecture cannot be loaded"),
    "FNet": ("FNetConfig", _ENCODER, "cannot be exported to ONNX: Exporting the operator 'aten::fft_fftn'"),
    "Longformer": (
        "LongformerConfig",
        {**_WITH_SPECIAL, "attention_window": [16, 16], "max_position_embeddings": 160},
        "its graph reads only texts of some lengths",
    ),
    "Mamba": (
        "MambaConfig",
        {"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 8, **_SPECIAL},
        "its graph reads only texts of some lengths",
    ),
    "Mixtral": (
        "MixtralConfig",
        {**_HEADS, "num_local_experts": 2, "num_experts_per_tok": 1},
        "cannot be exported to ONNX: Exporting the operator 'aten::histc'",
    ),
    "Qwen 3 MoE": (
        "Qwen3MoeConfig",
        {**_HEADS, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32},
        "cannot be exported to ONNX: Exporting the operator 'aten::histc'",
    ),
}
LAST_TOKEN = {"Qwen 3 (Qwen3-Embedding)", "Mistral (e5-mistral)", "OPT", "StableLM"}
MAX_TOKENS = 128


def tokenizer() -> Any:
    """A tokenizer with a token for each byte, <s> before and </s> after."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    tokens = {token: number for number, token in enumerate(special + sorted(pre_tokenizers.ByteLevel.alphabet()))}
    fast = Tokenizer(models.BPE(tokens, [], unk_token="<unk>"))
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    return fast


def transformer_folder(folder: Path, config_class: str, parameters: dict[str, Any], dtype: str = "float32") -> Path:
    """Write a Hugging Face folder with a model of random weights."""
    import torch
    import transformers

    torch.manual_seed(0)
    config = getattr(transformers, config_class)(**parameters)
    encoder_only = config_class.replace("Config", "EncoderModel")
    model: Any = (
        getattr(transformers, encoder_only)(config)
        if hasattr(transformers, encoder_only)
        else transformers.AutoModel.from_config(config)
    )
    for weights in model.parameters():
        if weights.dim() > 1:
            weights.data.mul_(4)  # so that attention is far from uniform
        else:
            weights.data.add_(0.1 * torch.randn_like(weights))  # the tracer merges equal biases, as untrained ones are
    model.to(getattr(torch, dtype)).save_pretrained(folder)
    names = {"cls_token": "<s>", "pad_token": "<pad>", "sep_token": "</s>", "unk_token": "<unk>"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer(), **names).save_pretrained(folder)
    return folder


def model_folder(
    folder: Path,
    config_class: str,
    parameters: dict[str, Any],
    *,
    pooling: str = "mean",
    dense: int = 0,
    dtype: str = "float32",
    max_tokens: int | None = MAX_TOKENS,
    unit: bool = True,
    **options: Any,
) -> Path:
    """Write a sentence-transformers folder with a model of random weights.

    `dense` is the width of a Dense module, and `unit` adds the module Normalize.
    """
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, Transformer

    source = transformer_folder(folder / "transformer", config_class, parameters, dtype)
    first = Transformer(str(source), max_seq_length=max_tokens)
    width = first.get_embedding_dimension()
    modules = [first, Pooling(width, pooling), *([Dense(width, dense, bias=False)] if dense else [])]
    modules += [Normalize()] if unit else []
    model = SentenceTransformer(modules=modules, device="cpu", **options)
    model.save(str(folder / "model"), create_model_card=False)
    return folder / "model"
