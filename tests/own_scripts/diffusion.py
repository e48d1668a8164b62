"""Train a small DDPM: a U-Net that is told the time, noise to predict, an average of the weights (drawn discs, no download).

python diffusion.py --steps 20 --batch-size 64
"""

import argparse
import copy
import logging
import math
import os
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

os.environ["CUDA_LAUNCH_BLOCKING"] = "1"
log = logging.getLogger("ddpm")


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--image-size", type=int, default=32)
    parser.add_argument("--channels", type=int, default=64)
    parser.add_argument("--timesteps", type=int, default=1000)
    parser.add_argument("--samples", type=int, default=4096)
    parser.add_argument("--lr", type=float, default=2e-4)
    parser.add_argument("--ema-decay", type=float, default=0.999)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--log-every", type=int, default=10)
    parser.add_argument("--sample-every", type=int, default=10)
    parser.add_argument("--sample-steps", type=int, default=5)
    parser.add_argument("--checkpoint", default="")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


class Discs(Dataset):
    """One grey disc a picture, place and size from the picture's number."""

    def __init__(self, samples, size):
        self.samples = samples
        self.size = size

    def __len__(self):
        return self.samples

    def __getitem__(self, index):
        rng = np.random.default_rng(index)
        cy, cx, radius = rng.uniform(0.25, 0.75, 3) * self.size
        image = np.full((3, self.size, self.size), -1.0, dtype=np.float32)
        for y in range(self.size):
            for x in range(self.size):
                if (y - cy) ** 2 + (x - cx) ** 2 < (radius / 2) ** 2:
                    image[:, y, x] = 0.5
        return torch.from_numpy(image)


def swish(x):
    return x * torch.sigmoid(x)


def embed_time(t, dim, device):
    half = dim // 2
    rows = []
    for step in t.tolist():
        angles = [step * math.exp(-math.log(10000.0) * i / half) for i in range(half)]
        rows.append([math.sin(a) for a in angles] + [math.cos(a) for a in angles])
    return torch.tensor(rows).to(device)


class ResBlock(nn.Module):
    def __init__(self, inputs, outputs, time_dim):
        super().__init__()
        self.norm1 = nn.GroupNorm(8, inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.time = nn.Linear(time_dim, outputs)
        self.norm2 = nn.GroupNorm(8, outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.skip = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x, temb):
        x = x.to(memory_format=torch.channels_last)
        h = self.conv1(swish(self.norm1(x)))
        h = h + self.time(swish(temb))[:, :, None, None]
        h = self.conv2(swish(self.norm2(h)))
        return (h + self.skip(x)).contiguous()


class Attention(nn.Module):
    def __init__(self, channels, heads=4):
        super().__init__()
        self.heads = heads
        self.norm = nn.GroupNorm(8, channels)
        self.qkv = nn.Conv2d(channels, 3 * channels, 1)
        self.proj = nn.Conv2d(channels, channels, 1)

    def forward(self, x):
        B, C, H, W = x.shape
        qkv = self.qkv(self.norm(x)).view(B, 3, self.heads, C // self.heads, H * W)
        q, k, v = qkv.transpose(-2, -1).unbind(1)
        out = F.scaled_dot_product_attention(q, k, v)
        return x + self.proj(out.transpose(-2, -1).reshape(B, C, H, W))


class Down(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, stride=2, padding=1)

    def forward(self, x):
        return self.conv(x)


class Up(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        x = torch.repeat_interleave(torch.repeat_interleave(x, 2, dim=-1), 2, dim=-2)
        return self.conv(x)


class UNet(nn.Module):
    def __init__(self, channels=64):
        super().__init__()
        c, time_dim = channels, 4 * channels
        self.channels = channels
        self.time = nn.Sequential(nn.Linear(c, time_dim), nn.SiLU(), nn.Linear(time_dim, time_dim))
        self.stem = nn.Conv2d(3, c, 3, padding=1)
        self.down1 = ResBlock(c, c, time_dim)
        self.pool1 = Down(c)
        self.down2 = ResBlock(c, 2 * c, time_dim)
        self.pool2 = Down(2 * c)
        self.mid1 = ResBlock(2 * c, 2 * c, time_dim)
        self.attention = Attention(2 * c)
        self.mid2 = ResBlock(2 * c, 2 * c, time_dim)
        self.up2 = Up(2 * c)
        self.merge2 = ResBlock(4 * c, c, time_dim)
        self.up1 = Up(c)
        self.merge1 = ResBlock(2 * c, c, time_dim)
        self.norm = nn.GroupNorm(8, c)
        self.head = nn.Conv2d(c, 3, 3, padding=1)

    def forward(self, x, t):
        temb = self.time(embed_time(t, self.channels, x.device))
        x = self.stem(x)
        h1 = self.down1(x, temb)
        h2 = self.down2(self.pool1(h1), temb)
        h = self.mid1(self.pool2(h2), temb)
        h = self.mid2(self.attention(h), temb)
        h = self.merge2(torch.cat([self.up2(h), h2], dim=1), temb)
        h = self.merge1(torch.cat([self.up1(h), h1], dim=1), temb)
        return self.head(swish(self.norm(h)))


class Diffusion:
    def __init__(self, timesteps, device):
        self.timesteps = timesteps
        self.device = device
        betas = torch.linspace(1e-4, 0.02, timesteps)
        alpha_bar = torch.cumprod(1.0 - betas, dim=0)
        self.sqrt_alpha_bar = alpha_bar.sqrt()
        self.sqrt_one_minus = (1.0 - alpha_bar).sqrt()
        self.weight = (alpha_bar / (1.0 - alpha_bar)).clamp(max=5.0).to(device)

    def gather(self, table, t):
        return table[t.cpu()].to(self.device).view(-1, 1, 1, 1)

    def add_noise(self, x, noise, t):
        return self.gather(self.sqrt_alpha_bar, t) * x + self.gather(self.sqrt_one_minus, t) * noise

    def loss(self, predicted, noise, t):
        weight = self.weight[t]
        total = 0.0
        for i in range(predicted.size(0)):
            total = total + weight[i] * F.mse_loss(predicted[i].float(), noise[i])
        return total / predicted.size(0)

    def sample(self, model, shape, steps):
        x = torch.randn(shape, device=self.device)
        for step in range(self.timesteps - 1, 0, -(self.timesteps // steps)):
            t = torch.full((shape[0],), step, device=self.device)
            a, s = self.sqrt_alpha_bar[step].item(), self.sqrt_one_minus[step].item()
            clean = (x - s * model(x, t)) / a
            x = a * clean.clamp(-1, 1) + s * torch.randn(shape, device=self.device)
        return x


class EMA:
    def __init__(self, model, decay):
        self.decay = decay
        self.shadow = copy.deepcopy(model)

    @torch.no_grad()
    def update(self, model):
        for average, parameter in zip(self.shadow.parameters(), model.parameters(), strict=True):
            average.data = self.decay * average.data + (1.0 - self.decay) * parameter.data


def random_flip(x, generator):
    flips = []
    for i in range(x.size(0)):
        flips.append(x[i].flip(-1) if generator.random() < 0.5 else x[i])
    return torch.stack(flips)


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.manual_seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dtype = torch.float16 if device.type == "cuda" else torch.bfloat16

    loader = DataLoader(
        Discs(args.samples, args.image_size),
        batch_size=args.batch_size,
        shuffle=True,
        num_workers=args.workers,
        pin_memory=torch.cuda.is_available(),
        persistent_workers=args.workers > 0,
        drop_last=True,
        generator=torch.Generator().manual_seed(args.seed),
    )
    model = UNet(args.channels).to(device)
    diffusion = Diffusion(args.timesteps, device)
    ema = EMA(model, args.ema_decay)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, fused=True)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 10))
    scaler = torch.amp.GradScaler(device.type)
    coins = random.Random(args.seed)
    log.info("%.2fM parameters", sum(p.numel() for p in model.parameters()) / 1e6)

    step = 0
    while step < args.steps:
        for images in loader:
            if step >= args.steps:
                break
            x = random_flip(images.to(device, non_blocking=True), coins)
            t = torch.randint(0, args.timesteps, (x.size(0),), device=device)
            noise = torch.randn(x.shape).to(device)
            noisy = diffusion.add_noise(x, noise, t)
            with torch.autocast(device.type, dtype=dtype):
                predicted = model(noisy, t)
                loss = diffusion.loss(predicted, noise, t)

            optimizer.zero_grad(set_to_none=True)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=False)
            scale = scaler.get_scale()
            scaler.step(optimizer)
            scaler.update()
            scheduler.step()
            ema.update(model)

            with torch.no_grad(), torch.autocast(device.type, dtype=dtype):
                error = (model(noisy, t).float() - noise).abs().mean()

            step += 1
            if step % args.log_every == 0:
                log.info("step %d loss %.4f error %.4f scale %g", step, loss, error, scale)
            if step % args.sample_every == 0:
                with torch.autocast(device.type, dtype=dtype):
                    pictures = diffusion.sample(ema.shadow, tuple(x.shape), args.sample_steps)
                log.info("samples: mean %.3f", pictures.float().mean())

    if args.checkpoint:
        torch.save({"model": model.state_dict(), "ema": ema.shadow.state_dict()}, args.checkpoint)


if __name__ == "__main__":
    main()
