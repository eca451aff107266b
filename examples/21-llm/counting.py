"""A language model that needs no download: a Llama whose weights were set by hand, not trained, so that it counts.

After a colon it generates 1; after every number the next one; after the last number it begins again. The layers add
nothing to the embedding of the last token, and the output layer maps that embedding to the next token.
"""

import numpy as np
from gguf import GGUFWriter, TokenType

LAST = 500
WIDTH = 256
CONTEXT = 16384
FIRST_BYTE, FIRST_NUMBER = 3, 259
TEMPLATE = "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}assistant:"


def write(path):
    """Write the model as a GGUF file and return its path."""
    numbers = [f"\u2581{number}" for number in range(1, LAST + 1)]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *numbers]
    kinds = [TokenType.UNKNOWN, TokenType.CONTROL, TokenType.CONTROL, *[TokenType.BYTE] * 256, *[TokenType.NORMAL] * LAST]

    writer = GGUFWriter(path, "llama")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(WIDTH)
    writer.add_block_count(1)
    writer.add_head_count(4)
    writer.add_head_count_kv(4)
    writer.add_rope_dimension_count(WIDTH // 4)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("llama")
    writer.add_token_list([token.encode() for token in tokens])
    writer.add_token_scores([0.0] * len(tokens))
    writer.add_token_types(kinds)
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template(TEMPLATE)
    for name, values in weights(len(tokens)).items():
        writer.add_tensor(f"{name}.weight", values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def weights(tokens):
    """Return all tensors by name."""
    embedding = np.random.default_rng(0).standard_normal((tokens, WIDTH)).astype(np.float32)
    embedding /= np.linalg.norm(embedding, axis=1, keepdims=True)
    output = np.zeros_like(embedding)
    output[FIRST_NUMBER:] = np.roll(embedding[FIRST_NUMBER:], 1, axis=0)
    output[FIRST_NUMBER] += embedding[FIRST_BYTE + ord(":")]
    nothing, ones = np.zeros((WIDTH, WIDTH), np.float32), np.ones(WIDTH, np.float32)
    layers = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
    return {
        "token_embd": embedding,
        "output_norm": ones,
        "output": 10 * output,
        **{f"blk.0.{name}": nothing for name in layers},
        **{f"blk.0.{name}": ones for name in ("attn_norm", "ffn_norm")},
    }
