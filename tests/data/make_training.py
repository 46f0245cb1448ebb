#!/usr/bin/env python3
"""Makes training/: two tiny models, batches, and the losses of 50 steps of training each by JAX's autodiff, in f64.

    pip install jax gguf numpy && python3 tests/data/make_training.py

llama.gguf  2 blocks, grouped queries, tied head, RoPE over neighbours: trained whole ("full") and by adapters ("lora")
qwen3.gguf  2 blocks, QK norm, own head, RoPE over halves, fresh weights: trained whole ("scratch")

tales.json is 12 steps of recipes/tales.toml, on batches of its own. Its first weights are those that Peregrine draws:

    peregrine train scratch --config recipes/tales.toml --data ANY.txt --steps 1 --lr 0 --format F32 --out /tmp/first
    python3 tests/data/make_training.py /tmp/first/model.gguf

curves.json holds for each run its settings, the batches of every step (ids and labels; -1: not counted), the adapters'
first A (B is zero), and the loss before each step. The optimizer is AdamW with bias correction and decoupled decay (of
matrices alone), after clipping by the global norm; warm-up, then a cosine down to a tenth.
"""
import json, os, sys
import jax, jax.numpy as jnp, numpy as np
import gguf

jax.config.update("jax_enable_x64", True)
HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "training")
C, H, KV, D, F, V, BLOCKS, EPS, BASE = 32, 4, 2, 8, 48, 97, 2, 1e-5, 10000.0
STEPS, LENGTHS = 50, (12, 9)
random = np.random.default_rng(20261202)


def weights(arch, fresh):
    normal = lambda deviation, *shape: (random.standard_normal(shape) * deviation).astype(np.float32)
    gain = lambda n: np.ones(n, np.float32) if fresh else 1 + normal(0.1, n)
    w = {"token_embd.weight": normal(0.02 if fresh else 0.5, V, C), "output_norm.weight": gain(C)}
    if arch == "qwen3":
        w["output.weight"] = normal(0.02, V, C)
    for b in range(BLOCKS):
        p = f"blk.{b}."
        w[p + "attn_norm.weight"], w[p + "ffn_norm.weight"] = gain(C), gain(C)
        if arch == "qwen3":
            w[p + "attn_q_norm.weight"], w[p + "attn_k_norm.weight"] = gain(D), gain(D)
        for name, n, k in [("attn_q", H * D, C), ("attn_k", KV * D, C), ("attn_v", KV * D, C), ("attn_output", C, H * D),
                           ("ffn_gate", F, C), ("ffn_up", F, C), ("ffn_down", C, F)]:
            w[p + name + ".weight"] = normal(k ** -0.5, n, k)
    return w


def write(arch, w):
    out = gguf.GGUFWriter(os.path.join(HERE, arch + ".gguf"), arch)
    out.add_block_count(BLOCKS)
    out.add_context_length(64)
    out.add_embedding_length(C)
    out.add_feed_forward_length(F)
    out.add_head_count(H)
    out.add_head_count_kv(KV)
    out.add_key_length(D)
    out.add_value_length(D)
    out.add_layer_norm_rms_eps(EPS)
    out.add_rope_freq_base(BASE)
    for name, value in w.items():
        out.add_tensor(name, value)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def norm(x, gain):
    return x / jnp.sqrt(jnp.mean(x * x, axis=-1, keepdims=True) + np.float64(np.float32(EPS))) * gain


def rope(x, arch):  # [T, heads, D]
    # frequencies as Peregrine has them, in f32
    angles = np.arange(x.shape[0])[:, None] * (np.float32(BASE) ** np.float32(-2 * np.arange(D // 2) / D)).astype(np.float64)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    if arch == "llama":  # neighbours
        a, b = x[..., 0::2], x[..., 1::2]
        return jnp.stack([a * cos - b * sin, a * sin + b * cos], axis=-1).reshape(x.shape)
    a, b = x[..., : D // 2], x[..., D // 2 :]
    return jnp.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)


def logits(w, ids, arch):
    x = w["token_embd.weight"][ids]
    t = len(ids)
    mask = np.tril(np.ones((t, t), bool))
    for b in range(BLOCKS):
        m = lambda name: w[f"blk.{b}.{name}.weight"]
        n = norm(x, m("attn_norm"))
        q, k, v = ((n @ m(name).T).reshape(t, -1, D) for name in ("attn_q", "attn_k", "attn_v"))
        if arch == "qwen3":
            q, k = norm(q, m("attn_q_norm")), norm(k, m("attn_k_norm"))
        q, k = rope(q, arch), rope(k, arch)
        k, v = jnp.repeat(k, H // KV, axis=1), jnp.repeat(v, H // KV, axis=1)
        scores = jnp.where(mask, jnp.einsum("qhd,khd->hqk", q, k) / np.sqrt(D), -jnp.inf)
        x = x + jnp.einsum("hqk,khd->qhd", jax.nn.softmax(scores), v).reshape(t, -1) @ m("attn_output").T
        n = norm(x, m("ffn_norm"))
        x = x + (jax.nn.silu(n @ m("ffn_gate").T) * (n @ m("ffn_up").T)) @ m("ffn_down").T
    return norm(x, w["output_norm.weight"]) @ w.get("output.weight", w["token_embd.weight"]).T


def loss(w, batch, arch):
    total, count = 0.0, 0
    for ids, labels in batch:
        ids, labels = np.array(ids), np.array(labels)
        p = jax.nn.log_softmax(logits(w, ids, arch))
        total -= jnp.sum(jnp.where(labels >= 0, p[np.arange(len(ids)), labels], 0.0))
        count += int((labels >= 0).sum())
    return total / count


def batch():
    """Sequences of a rule with some noise, so that there is something to learn."""
    out = []
    for i, length in enumerate(LENGTHS):
        ids = [int(random.integers(V))]
        for _ in range(length):
            ids.append(int(random.integers(V)) if random.random() < 0.1 else (5 * ids[-1] + 3) % V)
        labels = ids[1:]
        if i == 1:
            labels[:2] = [-1, -1]
        out.append((ids[:-1], labels))
    return out


def train(arch, first, settings, batches, to_model):
    """`to_model(trained)` gives the whole model's weights; losses before each step."""
    trained = {name: jnp.asarray(value, jnp.float64) for name, value in first.items()}
    m = {name: jnp.zeros_like(value) for name, value in trained.items()}
    v = dict(m)
    s, losses = settings, []
    for step, b in enumerate(batches):
        value, gradient = jax.value_and_grad(lambda t: loss(to_model(t), b, arch))(trained)
        losses.append(float(value))
        size = float(jnp.sqrt(sum(jnp.sum(g * g) for g in gradient.values())))
        if step < s["warm_up"]:
            lr = s["lr"] * (step + 1) / s["warm_up"]
        else:
            done = (step - s["warm_up"]) / (STEPS - s["warm_up"])
            lr = s["lr"] * (0.1 + 0.9 * 0.5 * (1 + np.cos(np.pi * done)))
        for name in trained:
            g = gradient[name] * min(1.0, s["clip"] / size)
            m[name] = s["beta1"] * m[name] + (1 - s["beta1"]) * g
            v[name] = s["beta2"] * v[name] + (1 - s["beta2"]) * g * g
            mean, square = m[name] / (1 - s["beta1"] ** (step + 1)), v[name] / (1 - s["beta2"] ** (step + 1))
            decay = s["decay"] if trained[name].ndim == 2 else 0.0
            trained[name] = trained[name] * (1 - lr * decay) - lr * mean / (jnp.sqrt(square) + s["eps"])
    return losses


def tales(path):
    """The built-in model's architecture: only tales.json is made."""
    global C, H, KV, D, F, V, BLOCKS, STEPS, LENGTHS
    C, H, KV, D, F, V, BLOCKS, LENGTHS = 192, 6, 2, 32, 512, 2048, 6, (40, 33)
    STEPS = 3577
    first = {t.name: np.array(t.data, np.float32) for t in gguf.GGUFReader(path).tensors}
    settings = {"lr": 3e-3, "warm_up": 200, "steps": STEPS, "least": 0.02, "clip": 1.0, "beta1": 0.9, "beta2": 0.98,
                "eps": 1e-8, "decay": 0.1}
    batches = [batch() for _ in range(3)] * 4
    losses = train("llama", first, settings, batches, lambda t: t)
    with open(os.path.join(HERE, "tales.json"), "w") as file:
        json.dump({"settings": settings, "batches": batches, "losses": losses}, file, separators=(",", ":"))
    print("tales", losses)


if len(sys.argv) > 1:
    tales(sys.argv[1])
    sys.exit()
os.makedirs(HERE, exist_ok=True)
usual = {"warm_up": 5, "clip": 1.0, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "decay": 0.01}
runs = {}
llama, qwen3 = weights("llama", False), weights("qwen3", True)
write("llama", llama)
write("qwen3", qwen3)
for name, arch, first, lr in [("full", "llama", llama, 3e-3), ("scratch", "qwen3", qwen3, 1e-2)]:
    settings, batches = {**usual, "lr": lr}, [batch() for _ in range(STEPS)]
    runs[name] = {"model": arch + ".gguf", "settings": settings, "batches": batches,
                  "losses": train(arch, first, settings, batches, lambda t: t)}

rank, alpha = 4, 8.0
a = {f"blk.{b}.{name}": (random.standard_normal((rank, C)) * C ** -0.5).astype(np.float32)
     for b in range(BLOCKS) for name in ("attn_q", "attn_v")}
first = {}
for name, value in a.items():
    first[name + ".a"], first[name + ".b"] = value, np.zeros((llama[name + ".weight"].shape[0], rank))
base = {name: jnp.asarray(value, jnp.float64) for name, value in llama.items()}
adapted = lambda t: {**base, **{n + ".weight": base[n + ".weight"] + alpha / rank * t[n + ".b"] @ t[n + ".a"] for n in a}}
settings, batches = {**usual, "lr": 2e-2, "rank": rank, "alpha": alpha}, [batch() for _ in range(STEPS)]
runs["lora"] = {"model": "llama.gguf", "settings": settings, "batches": batches,
                "a": {name: value.flatten().tolist() for name, value in a.items()},
                "losses": train("llama", first, settings, batches, adapted)}
with open(os.path.join(HERE, "curves.json"), "w") as file:
    json.dump(runs, file, separators=(",", ":"))
for name, run in runs.items():
    print(name, run["losses"][0], run["losses"][-1])
