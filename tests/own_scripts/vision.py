"""Train a ResNet on images, in the way of PyTorch's ImageNet example (synthetic pictures, no download).

python vision.py --steps 20 --batch-size 64
"""

import argparse
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--image-size", type=int, default=96)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--samples", type=int, default=4096)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--weight-decay", type=float, default=1e-4)
    parser.add_argument("--label-smoothing", type=float, default=0.1)
    parser.add_argument("--print-freq", type=int, default=10)
    parser.add_argument("--eval-freq", type=int, default=10)
    parser.add_argument("--amp", action=argparse.BooleanOptionalAction, default=False)
    parser.add_argument("--checkpoint", default="")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


class Pictures(Dataset):
    """Pictures of noise with a label each; a crop and a flip are drawn from the picture's own number."""

    def __init__(self, samples, size, classes, train=True):
        self.samples = samples
        self.size = size
        self.classes = classes
        self.train = train
        rng = np.random.default_rng(0)
        self.bank = rng.integers(0, 256, (64, 3, size, size), dtype=np.uint8)
        self.mean = np.array(MEAN).reshape(3, 1, 1)
        self.std = np.array(STD).reshape(3, 1, 1)

    def __len__(self):
        return self.samples

    def augment(self, image, index):
        rng = np.random.default_rng(index)
        padded = np.pad(image, ((0, 0), (4, 4), (4, 4)))
        top, left = rng.integers(0, 9, 2)
        out = np.empty_like(image)
        for channel in range(3):
            for row in range(self.size):
                out[channel, row] = padded[channel, top + row, left : left + self.size]
        if rng.random() < 0.5:
            out = np.ascontiguousarray(out[:, :, ::-1])
        return out

    def __getitem__(self, index):
        image = self.bank[index % len(self.bank)]
        if self.train:
            image = self.augment(image, index)
        image = (image / 255.0 - self.mean) / self.std
        return image, index % self.classes


def collate(batch):
    images = torch.FloatTensor([image.tolist() for image, _ in batch])
    labels = torch.tensor([label for _, label in batch])
    return images, labels


class BasicBlock(nn.Module):
    def __init__(self, inputs, outputs, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x):
        identity = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += identity
        return self.relu(out)


class ResNet(nn.Module):
    def __init__(self, layers=(2, 2, 2, 2), width=64, classes=1000):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, 2, 3, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        )
        blocks, inputs = [], width
        for stage, depth in enumerate(layers):
            outputs = width * 2**stage
            for i in range(depth):
                blocks.append(BasicBlock(inputs, outputs, 2 if stage > 0 and i == 0 else 1))
                inputs = outputs
        self.blocks = nn.Sequential(*blocks)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(inputs, classes)

    def forward(self, x):
        x = self.blocks(self.stem(x))
        return self.fc(torch.flatten(self.pool(x), 1))


class AverageMeter:
    def __init__(self, name):
        self.name = name
        self.sum = 0.0
        self.count = 0

    def update(self, value, n=1):
        self.sum += value * n
        self.count += n

    def __str__(self):
        return f"{self.name} {float(self.sum) / max(self.count, 1):.4f}"


def accuracy(output, target, k=5):
    _, predicted = output.topk(k, 1)
    correct = predicted.eq(target.view(-1, 1))
    return correct[:, :1].float().sum() / target.size(0), correct.float().sum() / target.size(0)


def smooth_cross_entropy(output, target, smoothing):
    log_prob = F.log_softmax(output.float(), dim=-1)
    classes = output.size(-1)
    soft = torch.full_like(log_prob, smoothing / classes)
    soft.scatter_(1, target.unsqueeze(1), 1.0 - smoothing + smoothing / classes)
    return (-soft * log_prob).sum(dim=-1).mean()


def load(images, labels, device):
    images = images.to(device)
    labels = labels.to(device)
    return images, labels


def gradient_norm(model):
    total = 0.0
    for parameter in model.parameters():
        total += parameter.grad.norm(2).item() ** 2
    return total**0.5


def validate(loader, model, args, device):
    model.eval()
    meter = AverageMeter("val_acc1")
    outputs = []
    for images, labels in loader:
        images, labels = load(images, labels, device)
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=args.amp):
            outputs.append((model(images), labels))
    for output, labels in outputs:
        top1, _ = accuracy(output, labels)
        meter.update(top1.detach(), labels.size(0))
    model.train()
    return str(meter)


def main():
    args = parse_args()
    torch.manual_seed(args.seed)
    torch.autograd.set_detect_anomaly(True)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    model = ResNet(width=args.width, classes=args.classes).to(device)
    optimizer = torch.optim.SGD(
        model.parameters(),
        lr=args.lr,
        momentum=args.momentum,
        weight_decay=args.weight_decay,
        foreach=False,
    )
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.steps)

    train_set = Pictures(args.samples, args.image_size, args.classes)
    val_set = Pictures(2 * args.batch_size, args.image_size, args.classes, train=False)
    generator = torch.Generator().manual_seed(args.seed)
    train_loader = DataLoader(
        train_set,
        batch_size=args.batch_size,
        shuffle=True,
        num_workers=args.workers,
        collate_fn=collate,
        drop_last=True,
        generator=generator,
    )
    val_loader = DataLoader(val_set, batch_size=args.batch_size, collate_fn=collate)

    losses, acc1, acc5 = AverageMeter("loss"), AverageMeter("acc1"), AverageMeter("acc5")
    step, end, batch_time = 0, time.time(), AverageMeter("time")
    model.train()
    while step < args.steps:
        for images, labels in train_loader:
            if step >= args.steps:
                break
            images, labels = load(images, labels, device)
            with torch.autocast(device.type, dtype=torch.bfloat16, enabled=args.amp):
                output = model(images)
            loss = smooth_cross_entropy(output, labels, args.label_smoothing)

            optimizer.zero_grad()
            loss.backward()
            norm = gradient_norm(model)
            optimizer.step()
            scheduler.step()

            top1, top5 = accuracy(output, labels)
            losses.update(loss.item(), images.size(0))
            acc1.update(top1.cpu().numpy(), images.size(0))
            acc5.update(top5.detach(), images.size(0))

            if device.type == "cuda":
                torch.cuda.synchronize()
            batch_time.update(time.time() - end)
            end = time.time()
            step += 1
            if step % args.print_freq == 0:
                print(f"[{step}/{args.steps}] {losses} {acc1} {acc5} norm {float(norm):.3f}")
            if step % args.eval_freq == 0:
                print(validate(val_loader, model, args, device))

    if args.checkpoint:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, args.checkpoint)


if __name__ == "__main__":
    main()
