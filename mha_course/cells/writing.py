"""Notebook 14's model: with its weights, or with what was computed beforehand; what it writes."""

from typing import Any

from mha_course import check
from mha_course.collection.kept import kept
from mha_course.collection.opened import Opened
from mha_lesson import device, smollm
from mha_lesson.weights import WeightsMissing

WIDTH = 80  # signs in a line


class Absent:
    """Stands where the model would: whatever is asked of it, the weights are missing."""

    def __init__(self, why: str) -> None:
        self.why = why

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name) if name.startswith("_") else WeightsMissing(self.why)

    def __call__(self, *_: Any) -> Any:
        raise WeightsMissing(self.why)


def load() -> Any:
    """The model, a `SmolLM`. Without its weights a line says so, and `kept` results stand in."""
    try:
        model = smollm.load().to(device)
        n = sum(p.numel() for p in model.parameters())
        print(f"The model is here: {n / 1e6:.1f} million numbers.")
        return model
    except WeightsMissing as missing:
        print("The weights are not here. What this notebook computes with them was stored")
        print("beforehand, for its own prompts. To type yours, run this in a terminal (93 MB):")
        print("    mha-lesson weights writer")
        return Absent(str(missing))


def own(model: Any, kind: type) -> Any:
    """The model with the learner's layer in all thirty, once exercise 23 passes."""
    if not check.WritingAttention(kind).passed:
        print("Once exercise 23 passes, your layer writes here. Until then the package's does.")
        return model
    try:
        return model.with_attention(kind)
    except WeightsMissing:
        print("Your layer passes. Without the weights you see below what the package's wrote.")
        return model


def layer(kind: type) -> type:
    """The learner's layer, once exercise 23 passes; until then one of ours."""
    return kind if check.WritingAttention(kind).passed else Opened


def tell(
    model: Any,
    prompt: str,
    n_more: int = 40,
    temperature: float = 0.0,
    seed: int = 0,
    cached: bool = True,
) -> None:
    """Prints the prompt, and below it what the model writes, piece by piece as it comes."""
    line = ""

    def put(piece: str) -> None:
        nonlocal line
        if line == "→" and not piece[:1].isspace():
            piece = f" {piece}"
        if piece.startswith(" ") and len(line + piece) > WIDTH:
            piece = f"\n  {piece[1:]}"
        print(piece, end="", flush=True)
        line = (line + piece).rpartition("\n")[2]

    @kept
    def told(prompt: str, n_more: int, temperature: float, seed: int) -> list[str]:
        pieces = []
        for piece in model.write(prompt, n_more, temperature, seed, cached):
            put(piece)
            pieces.append(piece)
        return pieces

    print(prompt)
    put("→")
    pieces = told(prompt, n_more, temperature, seed)
    if isinstance(model, Absent):
        for piece in pieces:
            put(piece)
    print()
