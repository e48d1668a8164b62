import torch
import torch.nn.functional as F


def train(gpu, model, batches, class_weights, lr=0.1, max_norm=1.0, log_every=100):
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    weight = torch.tensor(class_weights, device=gpu.device)
    kept, log = [], []
    for i, (x, y) in enumerate(batches, start=1):
        has_label = y >= 0
        classes = y.clamp(min=0)
        logits = model(x)
        each = F.cross_entropy(logits, classes, weight=weight, reduction="none")
        share = weight[classes] * has_label
        loss = torch.where(has_label, each, 0.0).sum() / share.sum()
        model.zero_grad()
        loss.backward()
        with torch.no_grad():
            good = loss.isfinite()
            grads = [torch.where(good, p.grad, torch.zeros_like(p)) for p in model.parameters()]
            norm = torch.sqrt(sum((g * g).sum() for g in grads))
            factor = torch.clamp(max_norm / norm, max=1.0)
            factor = torch.where(norm > 0, factor, torch.ones_like(factor))
            for p, g in zip(model.parameters(), grads):
                p.grad = g * factor
            optimizer.step()
            hits = ((logits.argmax(1) == classes) & has_label).sum()
            line = torch.stack([loss.detach(), torch.ones_like(loss), hits.to(loss), has_label.sum().to(loss)])
            kept.append(torch.where(good, line, torch.zeros_like(line)))
        if i % log_every == 0:
            total, taken, right, seen = torch.stack(kept).sum(0).cpu().tolist()
            kept = []
            log.append([i, total / max(taken, 1), right / max(seen, 1), log_every - taken])
    return log
