"""Train a click model: embedding tables, a pooled history, crosses of all pairs, an MLP (made-up clicks, no download).

python recommender.py --steps 20 --batch-size 1024
"""

import argparse
import json
import tempfile
import zlib

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

FEATURES = ("user", "city", "device", "hour", "campaign", "publisher", "category", "query")


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--rows", type=int, default=100_000, help="rows of each table")
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--history", type=int, default=20)
    parser.add_argument("--samples", type=int, default=65536)
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--l2", type=float, default=1e-6)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--log-every", type=int, default=10)
    parser.add_argument("--eval-every", type=int, default=10)
    parser.add_argument("--checkpoint", default="")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


class Clicks(Dataset):
    """A row: eight categories as text, thirteen numbers, the items seen before, clicked or not."""

    def __init__(self, samples, rows, history, seed=0):
        rng = np.random.default_rng(seed)
        self.rows = rows
        self.categories = rng.zipf(1.2, (samples, len(FEATURES))) % rows
        self.dense = rng.standard_normal((samples, 13), dtype=np.float32)
        self.history = rng.integers(1, rows, (samples, history))
        self.lengths = rng.integers(1, history + 1, samples)
        self.clicked = (rng.random(samples) < 0.25).astype(np.float32)

    def __len__(self):
        return len(self.clicked)

    def hashed(self, index):
        text = [f"{name}={value}" for name, value in zip(FEATURES, self.categories[index], strict=True)]
        return [zlib.crc32(word.encode()) % self.rows for word in text]

    def __getitem__(self, index):
        row = dict(zip(FEATURES, self.hashed(index), strict=True))
        row["dense"] = self.dense[index]
        row["history"] = self.history[index]
        row["length"] = int(self.lengths[index])
        row["clicked"] = float(self.clicked[index])
        return row


def collate(rows):
    batch = {}
    for name in (*FEATURES, "length", "clicked"):
        batch[name] = torch.stack([torch.tensor(row[name]) for row in rows])
    batch["dense"] = torch.stack([torch.tensor([float(value) for value in row["dense"]]) for row in rows])
    batch["history"] = torch.stack([torch.tensor([int(item) for item in row["history"]]) for row in rows])
    return batch


def to_device(batch, device):
    for name in batch:
        batch[name] = batch[name].to(device)
    return batch


def mlp(*sizes):
    layers = []
    for inputs, outputs in zip(sizes[:-1], sizes[1:], strict=True):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers)


@torch.compile(backend="aot_eager")
def squash(x, limit=50.0):
    if x.abs().max() > limit:
        x = x.clamp(-limit, limit)
    return torch.tanh(x / limit) * limit


class Tower(nn.Module):
    """Embeddings of the categories and the mean of the history's items."""

    def __init__(self, rows, dim):
        super().__init__()
        self.tables = nn.ModuleDict({name: nn.Embedding(rows, dim) for name in FEATURES})
        self.items = nn.Embedding(rows, dim)

    def pooled(self, history, length):
        total = torch.zeros(history.size(0), self.items.embedding_dim, device=history.device)
        for position in range(history.size(1)):
            seen = (position < length).float().unsqueeze(1)
            total = total + self.items(history[:, position]) * seen
        return total / length.unsqueeze(1)

    def forward(self, batch):
        vectors = [self.tables[name].weight[batch[name]] for name in FEATURES]
        vectors.append(self.pooled(batch["history"], batch["length"]))
        return vectors


def cross(vectors):
    crosses = []
    for i in range(len(vectors)):
        for j in range(i):
            crosses.append((vectors[i] * vectors[j]).sum(dim=1))
    return torch.stack(crosses, dim=1)


class ClickModel(nn.Module):
    def __init__(self, args):
        super().__init__()
        fields = len(FEATURES) + 2
        self.tower = Tower(args.rows, args.dim)
        self.bottom = mlp(13, args.hidden // 2, args.dim)
        self.top = mlp(args.dim + fields * (fields - 1) // 2, args.hidden, args.hidden, args.hidden // 2)
        self.out = nn.Linear(args.hidden // 2, 1)

    def forward(self, batch):
        dense = self.bottom(batch["dense"])
        vectors = [dense.float(), *self.tower(batch)]
        crossed = squash(cross(vectors))
        return self.out(self.top(torch.cat([vectors[0], crossed], dim=1))).squeeze(1)


def click_loss(logits, clicked, weight):
    probability = torch.sigmoid(logits.float()).clamp(1e-7, 1 - 1e-7)
    loss = -(weight[1] * clicked * probability.log() + weight[0] * (1 - clicked) * (1 - probability).log())
    return loss.mean()


def auc(logits, clicked):
    pairs = sorted(zip(logits.detach().float().cpu().tolist(), clicked.cpu().tolist(), strict=True))
    positives, ranks = 0, 0.0
    for rank, (_, label) in enumerate(pairs, start=1):
        if label > 0.5:
            positives += 1
            ranks += rank
    negatives = len(pairs) - positives
    return (ranks - positives * (positives + 1) / 2) / max(1, positives * negatives)


@torch.no_grad()
def evaluate(model, loader, device):
    model.eval()
    scores = []
    for batch in loader:
        batch = to_device(batch, device)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            scores.append(auc(model(batch), batch["clicked"]))
    model.train()
    return sum(scores) / len(scores)


def main():
    args = parse_args()
    torch.manual_seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    train_set = Clicks(args.samples, args.rows, args.history)
    val_set = Clicks(args.batch_size, args.rows, args.history, seed=1)
    loader = DataLoader(
        train_set,
        batch_size=args.batch_size,
        shuffle=True,
        collate_fn=collate,
        num_workers=args.workers,
        drop_last=True,
        generator=torch.Generator().manual_seed(args.seed),
    )
    val_loader = DataLoader(val_set, batch_size=args.batch_size, collate_fn=collate)

    model = ClickModel(args).to(device)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=args.lr)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=10, gamma=0.5)
    log = tempfile.NamedTemporaryFile("w", suffix=".jsonl")  # noqa: SIM115

    step = 0
    while step < args.steps:
        for batch in loader:
            if step >= args.steps:
                break
            batch = to_device(batch, device)
            weight = torch.tensor([1.0, 3.0]).to(device)
            with torch.autocast(device.type, dtype=torch.bfloat16):
                logits = model(batch)
            loss = click_loss(logits, batch["clicked"], weight)
            assert torch.isfinite(loss), "the loss is not finite"
            penalty = sum(p.pow(2).sum() for p in model.parameters())
            total = loss + 0.5 * args.l2 * penalty

            optimizer.zero_grad(set_to_none=False)
            total.backward()
            optimizer.step()
            scheduler.step()

            probability = torch.sigmoid(logits.detach().float())
            calibration = probability[batch["clicked"] > 0.5].mean()
            score = auc(logits, batch["clicked"])
            log.write(json.dumps({"step": step, "loss": loss.item()}) + "\n")
            step += 1
            if step % args.log_every == 0:
                print(f"step {step}: loss {loss.item():.4f} auc {score:.4f} calibration {calibration:.4f}")
            if step % args.eval_every == 0:
                print(f"step {step}: validation auc {evaluate(model, val_loader, device):.4f}")
    log.close()
    if args.checkpoint:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, args.checkpoint)


if __name__ == "__main__":
    main()
