"""The texts of the course, read from `data/`."""

import hashlib
import json
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from jaxtyping import Float
from safetensors import safe_open
from torch import Tensor

from mha_lesson.attention import scaled_dot_product_attention, split_heads

DATA = Path(__file__).resolve().parent.parent / "data"

SENTENCE = "The creek was cold and the spunky dog wanted to jump over it."
LAYER = 3  # its head 1 draws the arrow from "it" to "creek" that everybody likes to see
N_HEADS = 12


@dataclass(frozen=True, eq=False)
class Sentence:
    """A sentence as one layer of the published model meets it.

    Attributes:
        text: the sentence.
        tokens: T word pieces, "[CLS]" first and "[SEP]" last; "##" continues a word.
        embeddings: (T, d_model): what enters the model's first layer.
        hidden: (T, d_model): what enters layer `layer`.
        w_q, w_k, w_v, w_o: (d_model, d_model), that layer's projections as in nn.Linear, (out, in).
        b_q, b_k, b_v, b_o: (d_model,), their biases.
        layer, n_heads: which layer, counted from 0, and its number of heads.
    """

    text: str
    tokens: tuple[str, ...]
    layer: int
    n_heads: int
    embeddings: Float[Tensor, "T d_model"]
    hidden: Float[Tensor, "T d_model"]
    w_q: Float[Tensor, "d_model d_model"]
    w_k: Float[Tensor, "d_model d_model"]
    w_v: Float[Tensor, "d_model d_model"]
    w_o: Float[Tensor, "d_model d_model"]
    b_q: Float[Tensor, " d_model"]
    b_k: Float[Tensor, " d_model"]
    b_v: Float[Tensor, " d_model"]
    b_o: Float[Tensor, " d_model"]

    @property
    def d_model(self) -> int:
        return self.hidden.shape[1]

    @property
    def d_k(self) -> int:
        return self.d_model // self.n_heads

    @cached_property
    def heads(self) -> tuple[Tensor, Tensor, Tensor]:
        """Q, K and V of all heads, each (h, T, d_k)."""
        q, k, v = (
            split_heads((self.hidden @ w.T + b).unsqueeze(0), self.n_heads)[0]
            for w, b in ((self.w_q, self.b_q), (self.w_k, self.b_k), (self.w_v, self.b_v))
        )
        return q, k, v

    def head(self, i: int) -> tuple[Tensor, Tensor, Tensor]:
        """Q, K and V of head i, each (T, d_k)."""
        q, k, v = self.heads
        return q[i], k[i], v[i]

    @cached_property
    def weights(self) -> Float[Tensor, "h T T"]:
        """All heads' attention weights, (h, T, T): row = query, column = key."""
        return scaled_dot_product_attention(*self.heads, return_weights=True)[1]


@cache
def sentence() -> Sentence:
    """"The creek was cold and the spunky dog wanted to jump over it.", with its real vectors.

    Raises:
        FileNotFoundError: data/sentence.safetensors is not there.
        ValueError: it is not the file that this version was made with.
    """
    with safe_open(
        data_file("sentence.safetensors", _SENTENCE_SHA256), framework="pt"
    ) as file:
        words = json.loads(file.metadata()["sentence"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    return Sentence(
        words["text"], tuple(words["tokens"]), words["layer"], N_HEADS, **tensors
    )


def data_file(name: str, sha256: str) -> Path:
    """A file of `data/`, its hash compared before anything is read."""
    path = DATA / name
    if not path.is_file():
        raise FileNotFoundError(
            f"data/{name} is missing; it is part of the project: clone it again, "
            "and install the package from there with: pip install -e ."
        )
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != sha256:
        raise ValueError(
            f"data/{name} is not the file that this version was made with (SHA-256 {found[:12]}…, "
            f"expected {sha256[:12]}…); restore it with: git checkout data/{name}"
        )
    return path


_SENTENCE_SHA256 = "251e9cb5dc13b129c2f6df5fa46b40a41968d4ddb1bafff46b458f69f49c2cf2"
