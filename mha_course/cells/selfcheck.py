"""Is everything there? A line for each thing the course needs, with what to do if it is missing."""

from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from importlib import import_module
from importlib.util import find_spec

import torch

from mha_lesson import pretrained, text
from mha_lesson.attention import MultiHeadAttention
from mha_lesson.runtime import device


@dataclass(frozen=True)
class Line:
    """What the course needs, and the remedy if it is missing (empty: it is there)."""

    what: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"missing  {self.what}: {self.remedy}" if self.remedy else f"ok       {self.what}"


@dataclass(frozen=True)
class SelfCheck:
    lines: tuple[Line, ...]

    def __repr__(self) -> str:
        return "\n".join(map(str, self.lines))

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td style='text-align:left'>{'✓' if not line.remedy else '✗'}</td>"
            f"<td style='text-align:left'>{escape(line.what)}</td>"
            f"<td style='text-align:left'>{escape(line.remedy)}</td></tr>"
            for line in self.lines
        )
        heads = "".join(
            f"<th style='text-align:left'>{head}</th>" for head in ("there", "what", "what to do")
        )
        return f"<table><tr>{heads}</tr>{rows}</table>"


def everything() -> SelfCheck:
    """Looks at PyTorch, the pictures, the sliders, the data and the model's weights."""
    return SelfCheck(
        tuple(
            Line(what, _remedy(probe))
            for what, probe in (
                ("PyTorch 2.6 or later, computing", _torch),
                ("pictures (matplotlib)", lambda: _module("matplotlib")),
                ("sliders (ipywidgets, anywidget)", lambda: _module("ipywidgets", "anywidget")),
                ("the sentence and its vectors", text.sentence),
                ("the pretrained model, for notebook 8 only", pretrained.weights_path),
            )
        )
    )


def _remedy(probe: Callable[[], object]) -> str:
    try:
        probe()
    except (ImportError, OSError, ValueError, RuntimeError) as error:
        return str(error)
    return ""


def _torch() -> None:
    major, minor = (int(part) for part in torch.__version__.split(".")[:2])
    if (major, minor) < (2, 6):
        raise RuntimeError(f"this is torch {torch.__version__}; install a later one.")
    x = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0), device="cpu")
    with torch.random.fork_rng(devices=[]):  # the learner's random numbers stay as they are
        attention = MultiHeadAttention(4, 2)
    if not attention.to(device)(x.to(device)).isfinite().all():
        raise RuntimeError("attention gave a number that is not finite; reinstall torch.")


def _module(*names: str) -> None:
    for name in names:
        if find_spec(name) is None:
            raise ImportError(f"install it with: pip install {name}")
        import_module(name)
