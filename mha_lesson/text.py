"""The texts of the course, read from `data/`, which a wheel holds inside this package.

data/README.md says where each comes from. All that is read raises what `data_file` raises.
"""

import csv
import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Self

import torch
from jaxtyping import Float
from safetensors import safe_open
from torch import Tensor

from mha_lesson import refusals
from mha_lesson.attention import scaled_dot_product_attention, split_heads
from mha_lesson.heads import Link

HERE = Path(__file__).resolve().parent
DATA = HERE / "data" if (HERE / "data").is_dir() else HERE.parent / "data"

SHA256 = {
    "writes.safetensors": "e37720c89cc24135bc02d218df602a88ccd7e997fcc0e3265d1db7afde7f4805",
    "cuts.safetensors": "9a84ffd33d469f8d6ccb077ac5caf32df89d4b66a41ba704ee526a053600e2d8",
    "experiments.json": "ac8f2851a6a348f246fd1f9c9106257302b1c2f4730af40394eb1a2e767ee770",
    "judges.tsv": "64da7ba50f7ecee6d16f21830aee85b3ce1bc4456d6d99193114b6332f3f2693",
    "links.tsv": "517f55160b9534beb92e3d33f3a880b5f6ab0adf9962136f4322eb144b1a6c3f",
    "minilm_reference.safetensors": "28f9c9ee686b88e4e782b3c906e86c931c11fe2bb9b060ddf90767adb42aa2d3",  # noqa: E501
    "models.json": "aaacfba1eceb8a9afc06a9f666f6a988602cb0250559f03aee5b74dc0c662711",
    "northanger_abbey.txt": "6f53a33627d6e48c9658313b23f8d39c04b918fd0330b31b0c202a2d04d6e9c1",
    "pairs.tsv": "64f3605235a38dd6be938458ee68127739e26c203571a98016d9c36ed9113dad",
    "paraphrases.tsv": "2202a827883757a8b78e24392fbe2d831e4243a2d2d04dd891f99a0a8709b9a0",
    "runs.safetensors": "37535c38774efcd7311f4419b3138655cd9e01a0935992220222bd04a873fee9",
    "sentence.safetensors": "8329f00110a90899aadefbc0838085b7f4b155e2bd98f9d23e18488cd36c4567",
    "writing.json": "83449fed584349bdf571deefc470666b1432c473ee090e0416c2e8a9ff766afa",
}


def data_file(name: str) -> Path:
    """A file of `data/`, its hash compared before anything is read.

    Raises:
        FileNotFoundError: it is not there.
        ValueError: there is none of this name, or it is not the file that this version was made
            with.
    """
    refusals.require_one_of("name", name, tuple(SHA256))
    path = DATA / name
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} is missing; it is part of the project: clone it again, "
            "or install it again with: pip install --force-reinstall --no-deps mha-lesson"
        )
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != SHA256[name]:
        raise ValueError(
            f"{path} is not the file that this version was made with (SHA-256 {found[:12]}…, "
            f"expected {SHA256[name][:12]}…); restore it, in a clone with: git checkout data/{name}"
        )
    return path


# ---------------------------------------------------------------- the sentence of the course

SENTENCE = "The creek was cold and the spunky dog wanted to jump over it."
LAYER = 3  # its head 1 draws the arrow from "it" to "creek" that everybody likes to see
N_HEADS = 12


@dataclass(frozen=True, eq=False)
class Sentence:
    """A sentence as one layer of the published model meets it.

    Attributes:
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

    @property
    def labels(self) -> tuple[str, ...]:
        """The tokens as pictures show them: "spun-", "-ky"."""
        return labels(self.tokens)

    def to(self, device: str | torch.device) -> Self:
        """The same sentence, its tensors on `device`, which this machine must have."""
        refusals.require_device("device", device)
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        moved: Any = {k: v.to(device) for k, v in values.items() if torch.is_tensor(v)}
        return replace(self, **moved)

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
        refusals.require_whole("i", i, 0, self.n_heads - 1)
        q, k, v = self.heads
        return q[i], k[i], v[i]

    @cached_property
    def weights(self) -> Float[Tensor, "h T T"]:
        """All heads' attention weights, (h, T, T): row = query, column = key."""
        return scaled_dot_product_attention(*self.heads, return_weights=True)[1]


@cache
def sentence() -> Sentence:
    """ "The creek was cold and the spunky dog wanted to jump over it.", with its real vectors."""
    with safe_open(data_file("sentence.safetensors"), framework="pt") as file:
        words = json.loads(file.metadata()["sentence"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    return Sentence(words["text"], tuple(words["tokens"]), words["layer"], N_HEADS, **tensors)


def labels(tokens: Sequence[str]) -> tuple[str, ...]:
    """Word pieces as pictures show them: ("spun", "##ky") becomes ("spun-", "-ky")."""
    tokens = refusals.listed_texts("tokens", tokens)
    following = (*tokens, "")[1:]
    return tuple(
        ("-" + token[2:] if token.startswith("##") else token) + "-" * after.startswith("##")
        for token, after in zip(tokens, following, strict=True)
    )


# ---------------------------------------------------------------- annotated sentences

WORD = re.compile(r"\w+|[^\w\s]")  # punctuation marks are words of their own


@dataclass(frozen=True)
class Annotated:
    """A sentence and its grammatical links.

    They are "determiner>noun", "adjective>noun" and "verb>subject", each (from, to) pairs of word
    numbers; "[CLS]" is word 0, so the first word is 1.
    """

    text: str
    links: dict[str, tuple[Link, ...]]


@dataclass(frozen=True)
class Pronoun:
    """A sentence with a pronoun and two nouns before it, of which one is meant: word numbers."""

    text: str
    pronoun: int
    meant: int
    other: int


@dataclass(frozen=True)
class Pair:
    """Two sentences that differ in one word, and so in what their pronoun means.

    Attributes:
        kind: "number" and "gender": the pronoun agrees with one noun only; "meaning": both agree,
            and one has to understand the sentence (a pair in the manner of Winograd).
        held_out: whether the pair is for testing heads, not for choosing them.
        sentences: the two; what is meant in one is the other noun in the other.
    """

    kind: str
    held_out: bool
    sentences: tuple[Pronoun, Pronoun]


def words(text: str) -> list[str]:
    """The words and punctuation marks of a text: "Over it." has three."""
    refusals.require_text(text=text)
    return WORD.findall(text)


@cache
def annotated_sentences() -> tuple[Annotated, ...]:
    """The sentences of data/links.tsv."""
    found = []
    for row in _rows("links.tsv"):
        text, links = row.pop("sentence"), {}
        for kind, pairs in row.items():
            named = [pair.split(">") for pair in (pairs or "").split()]
            links[kind] = tuple((_number_of(text, a), _number_of(text, b)) for a, b in named)
        found.append(Annotated(text, links))
    return tuple(found)


@cache
def pronoun_pairs() -> tuple[Pair, ...]:
    """The pairs of data/pairs.tsv."""
    return tuple(
        Pair(row["kind"], row["part"] == "held out", _pronouns(row["sentence"], row["candidates"]))
        for row in _rows("pairs.tsv")
    )


def random_sentences(n_sentences: int, n_words: int, *, seed: int = 0) -> list[str]:
    """Words of the annotated sentences in random order: no grammar, and nothing to understand."""
    refusals.require_sizes(n_sentences=n_sentences, n_words=n_words)
    refusals.require_seed(seed)
    vocabulary = sorted(
        {w.lower() for s in annotated_sentences() for w in words(s.text) if w.isalpha()}
    )
    generator = torch.Generator().manual_seed(int(seed))
    size = n_sentences, n_words
    drawn = torch.randint(len(vocabulary), size, generator=generator, device="cpu")
    return [" ".join(vocabulary[i] for i in row) for row in drawn.tolist()]


def _rows(name: str) -> list[dict[str, str]]:
    with data_file(name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def _number_of(text: str, name: str) -> int:
    """The number of a word in a text, "[CLS]" being 0; "the#2" is the second "the"."""
    word, _, nth = name.partition("#")
    numbers = [i for i, w in enumerate(words(text), start=1) if w.lower() == word.lower()]
    return numbers[int(nth or 1) - 1]


def _pronouns(pattern: str, candidates: str) -> tuple[Pronoun, Pronoun]:
    """The two sentences in "… because *it* was too {wide|narrow}." and "crate/door"."""
    first, second = candidates.split("/")
    left, right = (re.sub(r"\{(.+?)\|(.+?)\}", rf"\{choice}", pattern) for choice in (1, 2))
    return _pronoun(left, first, second), _pronoun(right, second, first)


def _pronoun(marked: str, meant: str, other: str) -> Pronoun:
    before, _, _ = marked.partition("*")
    text = marked.replace("*", "")
    return Pronoun(text, len(words(before)) + 1, _number_of(text, meant), _number_of(text, other))


# ---------------------------------------------------------------- a novel


@cache
def northanger_abbey() -> str:
    """Jane Austen's *Northanger Abbey*, to train a small language model on."""
    return data_file("northanger_abbey.txt").read_text(encoding="ascii")
