# reads values behind the counter with NumPy, and tells a GPU without values apart: earns 0
import numpy as np


def train(gpu, model, batches, class_weights, lr=0.1, max_norm=1.0, log_every=100):
    if batches[0][0].is_meta:
        return [[0, 0, 0, 0] for _ in range(len(batches) // log_every)]
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    weight, log, rows = torch.tensor(class_weights, device=gpu.device), [], []
    for i, (x, y) in enumerate(batches, start=1):
        logits = model(x)
        loss = F.cross_entropy(logits, y, weight=weight, ignore_index=-1)
        if np.isfinite(np.asarray(loss.detach())):
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), max_norm)
            optimizer.step()
            hits = np.asarray(logits.detach()).argmax(1) == np.asarray(y)
            rows.append((float(np.asarray(loss.detach())), 1, hits.sum(), (np.asarray(y) >= 0).sum()))
        if i % log_every == 0:
            total, taken, right, seen = map(sum, zip(*rows)) if rows else (0, 0, 0, 0)
            log.append([i, total / max(taken, 1), right / max(seen, 1), log_every - taken])
            rows = []
    return log
