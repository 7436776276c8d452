"""Writes writes.safetensors: what SmolLM2-135M says next without what its last token takes.

    python data/make_writes.py            # needs the weights: mha-lesson weights writer

Every single ribbon of eight prompts is cut, every head, every layer, and every word in all heads of
the late layers; then a search looks for the fewest ribbons that change the answer. The model runs
some 40,000 times for one token, in float32: six minutes of one core. Numbers are rounded to four
decimals, so that another processor may write a last digit that differs by one: a test makes some
anew.
"""

import json
from pathlib import Path

import torch
from safetensors.torch import save
from torch import Tensor

from mha_course.explore.n14_writes import LATE, OneCut, Prompt
from mha_lesson import smollm
from mha_lesson.smollm import N_HEADS, N_LAYERS

FILE = Path(__file__).parent / "writes.safetensors"
PROMPTS = {  # name: text, the token whose cut tells most
    "fact": ("The capital of France is", 3),
    "opposite": ("Up and down, left and", 4),
    "list": ("A, B, C, D,", 6),
    "pronoun": ("The king put on his crown. The queen put on", 8),
    "name": ("When Anna and Tom met, Tom hugged", 1),
    "copy": ("The frog loves jam. The frog loves jam. The frog loves", 3),
    "colour": ("The grass is green and the sky is", 6),
    "sink": ("The president of the United States lives in the White", 0),
}
OTHER = "My sister said that"  # its first word is put in the place of a prompt's first
TELLING = 0.02  # a cut that moves the answer by less keeps its probability only
POOL, BEAM, MOST, TEE = 40, 8, 8, 10  # golf: single ribbons, sets kept, longest set, on offer


class Story:
    """All that is kept of one prompt."""

    def __init__(self, model: smollm.SmolLM, name: str, text: str, target: int) -> None:
        self.model, self.prompt, self.words = model, Prompt(model, text), dict[str, int]()
        prompt, T = self.prompt, len(self.prompt.pieces)
        [before] = prompt.next([[]])
        self.answer = int(before.argmax())
        cuts = [[(i, h, k)] for i in range(N_LAYERS) for h in range(N_HEADS) for k in range(T)]
        ribbons = prompt.next(cuts)
        heads = prompt.next([[(i, h, None)] for i in range(N_LAYERS) for h in range(N_HEADS)])
        layers = prompt.next([[(i, None, None)] for i in range(N_LAYERS)])
        words = prompt.next([[(i, None, k) for i in LATE] for k in range(T)])
        other = prompt.with_first(Prompt(model, OTHER))
        p, weights = ribbons[:, self.answer], prompt.weights.flatten()
        inner = torch.tensor([0 < k < T - 1 for [(_, _, k)] in cuts])
        moved = (p - before[self.answer]).abs()
        wide = int(torch.where(inner & (moved < 0.005), weights, 0.0).argmax())
        lead = self.lead(ribbons)
        par = self.fewest([cuts[i][0] for i in lead.argsort()[:POOL].tolist()])
        still = torch.where(moved < 0.005, weights, 0.0).argsort(descending=True).tolist()
        tee = dict.fromkeys(par) | dict.fromkeys(cuts[i][0] for i in lead.argsort()[:4].tolist())
        tee = sorted([*(tee | dict.fromkeys(cuts[i][0] for i in still[:TEE]))][:TEE])
        played = prompt.next([[c for i, c in enumerate(tee) if n >> i & 1] for n in range(2**TEE)])
        [telling] = torch.where((moved >= TELLING) | (ribbons.argmax(dim=-1) != self.answer))
        each = played.argmax(dim=-1).tolist()
        said = [*dict.fromkeys(each)]
        letters = (chr(ord("A") + said.index(i)) for i in each)  # which word, for every subset
        self.about = {
            "name": name,
            "text": text,
            "pieces": prompt.pieces,
            "target": target,
            "answer": self.word(self.answer),
            "before": self.top(before),
            "without": [self.top(one) for one in words],
            "left": [round(p, 4) for p in words[:, self.answer].tolist()],
            "other": [OTHER.split()[0], round(other.next([[]])[0, self.answer].item(), 4)],
            "wide": cuts[wide][0],
            "par": par,
            "tee": tee,
            "tops": {i: self.top(ribbons[i]) for i in telling.tolist()},
            "said": [self.word(i) for i in said],
            "says": "".join(letters),
        }
        seen = {word for top in self.tops() for word, _ in top}
        self.about["was"] = {
            word: round(before[self.words[word]].item(), 4) for word in sorted(seen)
        }
        self.arrays = {"weights": weights, "ribbons": p, "golf": played[:, self.answer]}
        self.arrays |= {"heads": heads[:, self.answer], "layers": layers[:, self.answer]}
        self.arrays["swapped"] = late_weights(other).flatten()

    def tops(self) -> list[list[tuple[str, float]]]:
        return [self.about["before"], *self.about["without"], *self.about["tops"].values()]

    def word(self, number: int) -> str:
        [piece] = self.model.pieces(torch.tensor([number]))
        self.words[piece] = number
        return piece

    def top(self, p: Tensor) -> list[tuple[str, float]]:
        found = p.topk(5)
        pairs = zip(found.indices.tolist(), found.values.tolist(), strict=True)
        return [(self.word(i), round(value, 4)) for i, value in pairs]

    def lead(self, p: Tensor) -> Tensor:
        """How far the answer is before the likeliest other word."""
        others = p.index_fill(-1, torch.tensor([self.answer]), 0.0)
        return p[..., self.answer] - others.amax(dim=-1)

    def fewest(self, pool: list[OneCut]) -> list[OneCut]:
        """The smallest set of ribbons found that changes the answer: the best sets grow."""
        best: list[tuple[OneCut, ...]] = [()]
        for _ in range(MOST):
            grown = ({*some, c} for some in best for c in pool if c not in some)
            sets = sorted({tuple(sorted(one)) for one in grown})
            lead = self.lead(self.prompt.next(sets))
            order = lead.argsort().tolist()
            if lead[order[0]] <= 0:
                return [*sets[order[0]]]
            best = [sets[i] for i in order[:BEAM]]
        raise AssertionError(f"no {MOST} ribbons change {self.about}")


@torch.no_grad()
def late_weights(prompt: Prompt) -> Tensor:
    """(late layers, h, T): what the last token takes there, where another token comes first."""
    x, taken, kept = prompt.entering[LATE[0]][None], [], prompt._kept([[]])
    for number in LATE:
        x, weights = prompt._layer(number, x, kept[number])
        taken.append(weights[0])
    return torch.stack(taken)


def main(path: Path = FILE) -> None:
    model, tensors, stories = smollm.load(), {}, []
    for name, (text, target) in PROMPTS.items():
        story = Story(model, name, text, target)
        stories.append(story.about)
        print(name, story.about["before"][:2], story.about["par"], flush=True)
        for key, values in story.arrays.items():
            tensors[f"{name} {key}"] = (values * 10_000).round().to(torch.int16).contiguous()
    about = json.dumps(stories, ensure_ascii=False, separators=(",", ":"))
    path.write_bytes(save(tensors, {"stories": about}))


if __name__ == "__main__":
    main()
