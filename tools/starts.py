"""What the first draw of W^Q, W^K and W^V costs notebook 7's language model, of one block or two.

    python tools/starts.py [--blocks 1 2] [--rates .003 .006 .012] [--seeds 5] [--steps 600]

A cell is the loss on unread text in nats a character, mean of the seeds, and the number of seeds
that end below the package's start. The narrower starts are the package's draw, scaled: within a
seed all other weights, and the windows, are the same. Half an hour of one idle core.
"""

import argparse
from functools import partial
from itertools import product
from statistics import mean

import torch
from torch import Tensor, nn

from mha_course.collection.runs import Plan, alphabet, novel_ids
from mha_lesson.models import LanguageModel, pre_norm
from mha_lesson.tasks import text_batches
from mha_lesson.training import predict_next

# The bound between which each draws uniformly, as a share of the package's.
STARTS = {"Glorot's rule for each": 1.0, "for the fused matrix": 2**-0.5, "nn.Linear": 3**-0.5}


class Stacked(nn.Module):
    """The blocks of several language models between the embeddings and the reader of the first."""

    def __init__(self, n_blocks: int, share: float) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(LanguageModel(len(alphabet())) for _ in range(n_blocks))
        for block in self.blocks:
            block.attention.w_qkv.weight.data *= share

    def forward(self, ids: Tensor) -> Tensor:
        ends = self.blocks[0]
        x = ends._embed(ids)
        for block in self.blocks:
            norms = block.norm_before_attention, block.norm_before_feed_forward
            x = pre_norm(x, norms, partial(block.attention, causal=True), block.feed_forward)
        return ends.reader(ends.norm_before_reader(x))


def loss_from(share: float, n_blocks: int, rate: float, n_steps: int, seed: int) -> float:
    read, unread = novel_ids()
    batches = partial(text_batches, read, 24, 48)
    plan = Plan(partial(Stacked, n_blocks, share), seed, batches, predict_next, n_steps, rate)
    model = plan.carry_out(f"seed {seed}").model.cpu()
    with torch.no_grad():
        return predict_next(model, unread[: len(unread) // 48 * 48].view(-1, 48)).item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--blocks", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rates", type=float, nargs="+", default=[0.003, 0.006, 0.012])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=600)
    args = parser.parse_args()
    torch.set_num_threads(1)
    print("| blocks | first rate |", " | ".join(STARTS), "|")
    print("|---|---|" + "---|" * len(STARTS))
    for n_blocks, rate in product(args.blocks, args.rates):
        losses = [
            [loss_from(share, n_blocks, rate, args.steps, seed) for seed in range(args.seeds)]
            for share in STARTS.values()
        ]
        below = [sum(a < b for a, b in zip(row, losses[0], strict=True)) for row in losses]
        cells = [f"{mean(row):.2f}, {n} below" for row, n in zip(losses, below, strict=True)]
        print(f"| {n_blocks} | {rate} |", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main()
