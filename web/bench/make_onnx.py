#!/usr/bin/env python3
"""Makes an ONNX model for transformers.js from a Llama GGUF in Q4_1 or Q4_0, so that both runtimes read the same weights.

  make_onnx.py MODEL.gguf FOLDER

The graph is made of what ONNX Runtime's own exports for WebGPU use: MatMulNBits in 4 bits, blocks of 32, for the
blocks' matrices and in 8 bits for the tied embeddings, GroupQueryAttention with rotary positions and a KV cache, and the
fused norms. Activations are float32. Needs `pip install onnx gguf`.
"""
import argparse
import json
from pathlib import Path

import numpy as np
import onnx
from gguf import GGUFReader
from gguf.quants import dequantize
from onnx import TensorProto, helper, numpy_helper

BLOCK = 32
FLOAT, INT64, INT32 = TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT32


class Llama:
    """A GGUF's numbers, names and weights."""

    def __init__(self, path):
        reader = GGUFReader(path)
        self.fields = {name: field.contents() for name, field in reader.fields.items()}
        if self.fields["general.architecture"] != "llama":
            raise SystemExit(f"the architecture is {self.fields['general.architecture']}, and only llama is known here")
        self.tensors = {tensor.name: tensor for tensor in reader.tensors}
        self.blocks = self["block_count"]
        self.width = self["embedding_length"]
        self.hidden = self["feed_forward_length"]
        self.heads = self["attention.head_count"]
        self.kv_heads = self["attention.head_count_kv"]
        self.head = self.width // self.heads
        self.context = self["context_length"]
        self.epsilon = float(self["attention.layer_norm_rms_epsilon"])
        self.base = float(self["rope.freq_base"])
        self.tokens = self.fields["tokenizer.ggml.tokens"]

    def __getitem__(self, name):
        return self.fields[f"llama.{name}"]

    def weight(self, name):
        """[rows, columns] as float32."""
        tensor = self.tensors[f"{name}.weight"]
        shape = [int(n) for n in reversed(tensor.shape)]
        return dequantize(tensor.data, tensor.tensor_type).reshape(shape).astype(np.float32)

    def rotated(self, name, heads):
        """A query or key matrix with each head's rows in halves, as GroupQueryAttention rotates them; a GGUF has pairs."""
        weight = self.weight(name)
        pairs = weight.reshape(heads, self.head // 2, 2, weight.shape[1])
        return pairs.swapaxes(1, 2).reshape(weight.shape)


def quantize(weight, bits):
    """Numbers (0 to 2^bits - 1, the middle is zero) and scales [rows, blocks]; of some scales, a block's best.

    Q4_1's offset per block has no place here, so 4 bits are rounded once more; Q8_0 stays what it was.
    """
    middle = 1 << bits - 1
    blocks = weight.reshape(weight.shape[0], -1, BLOCK)
    largest = np.take_along_axis(blocks, np.abs(blocks).argmax(-1, keepdims=True), -1)
    best = np.full(largest.shape, np.inf, np.float32)
    numbers, scales = np.zeros(blocks.shape, np.uint8), np.ones(largest.shape, np.float32)
    tries = np.arange(6.5, 9.1, 0.25) if bits == 4 else [middle - 1]
    for steps in tries:
        scale = np.where(largest == 0, 1, -largest / steps).astype(np.float32)
        number = np.clip(np.rint(blocks / scale), -middle, middle - 1)
        error = ((number * scale - blocks) ** 2).sum(-1, keepdims=True)
        better = error < best
        best = np.where(better, error, best)
        scales = np.where(better, scale, scales)
        numbers = np.where(better, (number + middle).astype(np.uint8), numbers)
    return numbers, scales[..., 0]


class Graph:
    """Nodes and weights in the order they are added; outputs are named after their nodes."""

    def __init__(self):
        self.nodes, self.weights = [], []

    def constant(self, name, array):
        self.weights.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def add(self, op, name, inputs, outputs=None, domain="", **attributes):
        outputs = outputs or [name]
        self.nodes.append(helper.make_node(op, inputs, outputs, name=name, domain=domain, **attributes))
        return outputs[0]

    def fused(self, *args, **attributes):
        return self.add(*args, domain="com.microsoft", **attributes)

    def matmul(self, name, x, weight, bits=4, level=4):
        """x times a matrix [rows, columns] in so many bits."""
        rows, columns = weight.shape
        numbers, scales = quantize(weight, bits)
        if bits == 4:
            numbers = numbers[..., 0::2] | numbers[..., 1::2] << 4
        self.constant(f"{name}.quant", numbers)
        self.constant(f"{name}.scales", scales)
        return self.fused("MatMulNBits", name, [x, f"{name}.quant", f"{name}.scales"], K=columns, N=rows, bits=bits,
                          block_size=BLOCK, accuracy_level=level)


def build(llama, level):
    graph = Graph()
    # How far each row of the batch is filled, and how many tokens there are in all.
    one, last = graph.constant("one", np.int64([1])), graph.constant("last", np.int64([-1]))
    count = graph.add("ReduceSum", "tokens", ["attention_mask", one], keepdims=0)
    filled = graph.add("Cast", "filled", [graph.add("Sub", "before", [count, one])], to=INT32)
    shape = graph.add("Shape", "mask.shape", ["attention_mask"])
    at_one = graph.constant("at_one", np.int64(1))
    total = graph.add("Cast", "total", [graph.add("Gather", "mask.length", [shape, at_one])], to=INT32)

    inverse = llama.base ** (-np.arange(0, llama.head, 2) / llama.head)
    angles = np.arange(llama.context)[:, None] * inverse
    cos = graph.constant("cos", np.cos(angles).astype(np.float32))
    sin = graph.constant("sin", np.sin(angles).astype(np.float32))

    norm = dict(axis=-1, epsilon=llama.epsilon, stash_type=1)
    table = llama.weight("token_embd")
    flat = graph.add("Reshape", "embeddings", ["lm_head.quant", graph.constant("flat", np.int64([len(table), -1]))])
    x = graph.fused("GatherBlockQuantized", "embed", [flat, "input_ids", "lm_head.scales"], bits=8, block_size=BLOCK,
                    gather_axis=0, quantize_axis=1)
    h = graph.add("SimplifiedLayerNormalization", "norm.first",
                  [x, graph.constant("norm.first.weight", llama.weight("blk.0.attn_norm"))], **norm)
    for i in range(llama.blocks):
        name = f"blk.{i}"
        past = [f"past_key_values.{i}.key", f"past_key_values.{i}.value"]
        present = [f"present.{i}.key", f"present.{i}.value"]
        q = graph.matmul(f"{name}.q", h, llama.rotated(f"{name}.attn_q", llama.heads), level=level)
        k = graph.matmul(f"{name}.k", h, llama.rotated(f"{name}.attn_k", llama.kv_heads), level=level)
        v = graph.matmul(f"{name}.v", h, llama.weight(f"{name}.attn_v"), level=level)
        mixed = graph.fused("GroupQueryAttention", f"{name}.attention", [q, k, v, *past, filled, total, cos, sin],
                            [f"{name}.mixed", *present], num_heads=llama.heads, kv_num_heads=llama.kv_heads,
                            scale=llama.head ** -0.5, do_rotary=1, rotary_interleaved=0)
        mixed = graph.matmul(f"{name}.o", mixed, llama.weight(f"{name}.attn_output"), level=level)
        h, x = skip_norm(graph, f"{name}.ffn_norm", x, mixed, llama.weight(f"{name}.ffn_norm"), llama.epsilon)
        gate = graph.matmul(f"{name}.gate", h, llama.weight(f"{name}.ffn_gate"), level=level)
        up = graph.matmul(f"{name}.up", h, llama.weight(f"{name}.ffn_up"), level=level)
        gate = graph.add("Mul", f"{name}.silu", [gate, graph.add("Sigmoid", f"{name}.sigmoid", [gate])])
        h = graph.add("Mul", f"{name}.gated", [gate, up])
        down = graph.matmul(f"{name}.down", h, llama.weight(f"{name}.ffn_down"), level=level)
        after = f"blk.{i + 1}.attn_norm" if i + 1 < llama.blocks else "output_norm"
        h, x = skip_norm(graph, f"norm.after.{i}", x, down, llama.weight(after), llama.epsilon)
    # Only the last token's logits are asked for, so only they are computed.
    h = graph.add("Slice", "h.last", [h, last, graph.constant("end", np.int64([1 << 40])), one])
    graph.matmul("lm_head", h, table, bits=8, level=level)
    graph.nodes[-1].output[0] = "logits"

    # transformers.js goes by the names of these sizes.
    def cache(name, length):
        shape = ["batch_size", llama.kv_heads, length, llama.head]
        return [helper.make_tensor_value_info(f"{name}.{i}.{part}", FLOAT, shape)
                for i in range(llama.blocks) for part in ("key", "value")]

    total = "total_sequence_length"
    inputs = [helper.make_tensor_value_info("input_ids", INT64, ["batch_size", "sequence_length"]),
              helper.make_tensor_value_info("attention_mask", INT64, ["batch_size", total]),
              *cache("past_key_values", "past_sequence_length")]
    outputs = [helper.make_tensor_value_info("logits", FLOAT, ["batch_size", 1, len(table)]), *cache("present", total)]
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    made = helper.make_graph(graph.nodes, "llama", inputs, outputs, graph.weights)
    return helper.make_model(made, opset_imports=opsets, ir_version=10, producer_name="make_onnx")


def skip_norm(graph, name, x, added, weight, epsilon):
    """The norm of x + added, and the sum."""
    outputs = [name, "", "", f"{name}.sum"]
    weight = graph.constant(f"{name}.weight", weight)
    graph.fused("SkipSimplifiedLayerNormalization", name, [x, added, weight], outputs, epsilon=epsilon)
    return name, f"{name}.sum"


def about(llama):
    """The JSON files beside the graph."""
    field = llama.fields
    begin, end, pad = (field[f"tokenizer.ggml.{name}_token_id"] for name in ("bos", "eos", "padding"))
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
        "hidden_size": llama.width, "intermediate_size": llama.hidden, "num_hidden_layers": llama.blocks,
        "num_attention_heads": llama.heads, "num_key_value_heads": llama.kv_heads, "head_dim": llama.head,
        "max_position_embeddings": llama.context, "rms_norm_eps": llama.epsilon, "rope_theta": llama.base,
        "vocab_size": len(llama.tokens), "tie_word_embeddings": True, "torch_dtype": "float32",
        "bos_token_id": begin, "eos_token_id": end, "pad_token_id": pad,
    }
    control = [{"id": i, "content": llama.tokens[i], "single_word": False, "lstrip": False, "rstrip": False,
                "normalized": False, "special": True}
               for i, kind in enumerate(field["tokenizer.ggml.token_type"]) if kind == 3]
    bytes_to_text = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": control, "normalizer": None,
        "pre_tokenizer": {"type": "Sequence",
                          "pretokenizers": [{"type": "Digits", "individual_digits": True}, bytes_to_text]},
        "post_processor": None, "decoder": bytes_to_text,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                  "vocab": {token: i for i, token in enumerate(llama.tokens)}, "merges": field["tokenizer.ggml.merges"]},
    }
    tokenizer_config = {
        "tokenizer_class": "GPT2Tokenizer", "add_prefix_space": False, "clean_up_tokenization_spaces": False,
        "model_max_length": llama.context, "chat_template": field["tokenizer.chat_template"],
        "bos_token": llama.tokens[begin], "eos_token": llama.tokens[end], "pad_token": llama.tokens[pad],
        "unk_token": llama.tokens[field["tokenizer.ggml.unknown_token_id"]],
    }
    generation = {"bos_token_id": begin, "eos_token_id": end, "pad_token_id": pad}
    return {"config": config, "tokenizer": tokenizer, "tokenizer_config": tokenizer_config,
            "generation_config": generation}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gguf", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--level", type=int, default=4, choices=(0, 1, 4),
                        help="MatMulNBits' accuracy: 4 lets it multiply in int8, 1 asks for float32 (default 4, as ORT's exports)")
    options = parser.parse_args()
    llama = Llama(options.gguf)
    (options.folder / "onnx").mkdir(parents=True, exist_ok=True)
    for name, content in about(llama).items():
        (options.folder / f"{name}.json").write_text(json.dumps(content, ensure_ascii=False))
    file = options.folder / "onnx/model_q4.onnx"
    onnx.save(build(llama, options.level), file)
    print(f"{file}: {file.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
