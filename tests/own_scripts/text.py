"""Train a small GPT on text, in the way of nanoGPT (made-up text, no download).

python text.py --max-iters 20 --batch-size 32
"""

import argparse
import json
import math
import os
import tempfile

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--max-iters", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--block-size", type=int, default=256)
    parser.add_argument("--n-layer", type=int, default=6)
    parser.add_argument("--n-head", type=int, default=6)
    parser.add_argument("--n-embd", type=int, default=384)
    parser.add_argument("--vocab", type=int, default=8192)
    parser.add_argument("--words", type=int, default=60000)
    parser.add_argument("--lr", type=float, default=6e-4)
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--grad-clip", type=float, default=1.0)
    parser.add_argument("--eval-interval", type=int, default=10)
    parser.add_argument("--eval-iters", type=int, default=2)
    parser.add_argument("--log-interval", type=int, default=10)
    parser.add_argument("--save-interval", type=int, default=1)
    parser.add_argument("--out-dir", default="")
    parser.add_argument("--seed", type=int, default=1337)
    return parser.parse_args()


class Tokenizer:
    def __init__(self, vocab):
        self.word_to_id = {f"word{i}": i for i in range(vocab)}

    def encode(self, text):
        return [self.word_to_id[word.strip().lower()] for word in text.split(" ")]


class TextDataset(Dataset):
    """Windows of a long text, each with the same window one word later."""

    def __init__(self, words, tokenizer, block_size):
        self.words = words
        self.tokenizer = tokenizer
        self.block_size = block_size

    def __len__(self):
        return len(self.words) - self.block_size - 1

    def __getitem__(self, index):
        text = " ".join(self.words[index : index + self.block_size + 1])
        ids = torch.tensor(self.tokenizer.encode(text))
        return ids[:-1], ids[1:]


def make_words(count, vocab, seed):
    rng = np.random.default_rng(seed)
    return [f"Word{i}" for i in np.minimum(rng.zipf(1.3, count), vocab - 1)]


class LayerNorm(nn.Module):
    def __init__(self, size, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.bias = nn.Parameter(torch.zeros(size))
        self.eps = eps

    def forward(self, x):
        mean = x.mean(-1, keepdim=True)
        variance = (x - mean).pow(2).mean(-1, keepdim=True)
        return (x - mean) / torch.sqrt(variance + self.eps) * self.weight + self.bias


class CausalSelfAttention(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.n_head = args.n_head
        self.c_attn = nn.Linear(args.n_embd, 3 * args.n_embd)
        self.c_proj = nn.Linear(args.n_embd, args.n_embd)

    def forward(self, x, mask):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(C, dim=2)
        q = q.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        k = k.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        v = v.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(mask == 0, float("-inf"))
        att = F.softmax(att, dim=-1)
        y = att @ v
        y = y.transpose(1, 2).contiguous().view(B, T, C)
        return self.c_proj(y)


def new_gelu(x):
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


class MLP(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.c_fc = nn.Linear(args.n_embd, 4 * args.n_embd)
        self.c_proj = nn.Linear(4 * args.n_embd, args.n_embd)

    def forward(self, x):
        return self.c_proj(new_gelu(self.c_fc(x)))


class Block(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.ln_1 = LayerNorm(args.n_embd)
        self.attn = CausalSelfAttention(args)
        self.ln_2 = LayerNorm(args.n_embd)
        self.mlp = MLP(args)

    def forward(self, x, mask):
        residual = x.clone()
        x = residual + self.attn(self.ln_1(x), mask)
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.block_size = args.block_size
        self.wte = nn.Embedding(args.vocab, args.n_embd)
        self.wpe = nn.Embedding(args.block_size, args.n_embd)
        self.blocks = nn.ModuleList(Block(args) for _ in range(args.n_layer))
        self.ln_f = LayerNorm(args.n_embd)
        self.lm_head = nn.Linear(args.n_embd, args.vocab, bias=False)
        self.register_buffer("causal", torch.tril(torch.ones(args.block_size, args.block_size)))
        self.register_buffer("positions", torch.arange(args.block_size))
        self.apply(self._init_weights)
        self.wte.weight = self.lm_head.weight

    def _init_weights(self, module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, mean=0.0, std=0.02)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)

    def forward(self, idx):
        B, T = idx.size()
        pos = torch.arange(T).to(idx.device)
        mask = torch.tril(torch.ones(T, T)).to(idx.device)
        x = self.wte(idx) + self.wpe(pos)
        for block in self.blocks:
            x = block(x, mask)
        x = self.ln_f(x)
        with torch.autocast(idx.device.type, enabled=False):
            return self.lm_head(x.float())


def lm_loss(logits, targets):
    log_probs = torch.log_softmax(logits.float(), dim=-1)
    picked = torch.gather(log_probs, 2, targets.unsqueeze(-1)).squeeze(-1)
    return -picked.mean()


def get_lr(iteration, args):
    if iteration < args.warmup:
        return args.lr * (iteration + 1) / args.warmup
    ratio = (iteration - args.warmup) / max(1, args.max_iters - args.warmup)
    return 0.1 * args.lr + 0.45 * args.lr * (1.0 + math.cos(math.pi * ratio))


@torch.no_grad()
def estimate_loss(model, loader, args, device):
    model.eval()
    total = torch.zeros((), device=device)
    for i, (x, y) in enumerate(loader):
        if i >= args.eval_iters:
            break
        x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            logits = model(x)
        total += lm_loss(logits, y)
    model.train()
    return total.item() / args.eval_iters


def configure_optimizer(model, args):
    decay = [p for p in model.parameters() if p.dim() >= 2]
    no_decay = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": decay, "weight_decay": 0.1}, {"params": no_decay, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=args.lr, betas=(0.9, 0.95), foreach=False)


def main():
    args = parse_args()
    torch.manual_seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    out_dir = args.out_dir or tempfile.mkdtemp()

    tokenizer = Tokenizer(args.vocab)
    train_set = TextDataset(make_words(args.words, args.vocab, 0), tokenizer, args.block_size)
    val_set = TextDataset(make_words(args.words // 10, args.vocab, 1), tokenizer, args.block_size)
    generator = torch.Generator().manual_seed(args.seed)
    train_loader = DataLoader(
        train_set,
        batch_size=args.batch_size,
        shuffle=True,
        num_workers=0,
        pin_memory=torch.cuda.is_available(),
        drop_last=True,
        generator=generator,
    )
    val_loader = DataLoader(val_set, batch_size=args.batch_size, pin_memory=torch.cuda.is_available())

    model = GPT(args).to(device)
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.2f}M parameters")
    optimizer = configure_optimizer(model, args)
    history = []
    for it, (x, y) in enumerate(train_loader):
        if it >= args.max_iters:
            break
        for group in optimizer.param_groups:
            group["lr"] = get_lr(it, args)
        x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            logits = model(x)
        loss = lm_loss(logits, y)
        if torch.isnan(loss):
            raise RuntimeError(f"the loss is NaN at iteration {it}")
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), args.grad_clip)
        optimizer.step()

        history.append((loss, logits, y))
        print(f"iter {it}: loss {loss:.4f}")
        torch.cuda.empty_cache()
        if (it + 1) % args.eval_interval == 0:
            print(f"step {it + 1}: val loss {estimate_loss(model, val_loader, args, device):.4f}")
        if (it + 1) % args.save_interval == 0:
            torch.save(model.state_dict(), os.path.join(out_dir, "ckpt.pt"))

    with open(os.path.join(out_dir, "history.jsonl"), "w") as out:
        for loss, logits, y in history:
            hits = (logits.argmax(-1) == y).float().mean()
            out.write(json.dumps({"loss": float(loss), "accuracy": float(hits)}) + "\n")


if __name__ == "__main__":
    main()
