# the plain loop, six waits a step: earns 0
def train(gpu, model, batches, class_weights, lr=0.1, max_norm=1.0, log_every=100):
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    log, total, taken, right, seen = [], 0.0, 0, 0, 0
    for i, (x, y) in enumerate(batches, start=1):
        weight = torch.tensor(class_weights, device=gpu.device)
        rows = (y >= 0).nonzero().squeeze(1)  # −1: this row has no label
        logits = model(x[rows])
        loss = F.cross_entropy(logits, y[rows], weight=weight)
        if torch.isfinite(loss):  # a bad batch: leave it out, of the training and of the log
            optimizer.zero_grad()
            loss.backward()
            norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
            if norm > max_norm:
                for p in model.parameters():
                    p.grad.mul_(max_norm / norm)
            optimizer.step()
            total, taken = total + loss.item(), taken + 1
            right, seen = right + (logits.argmax(1) == y[rows]).sum().item(), seen + len(rows)
        if i % log_every == 0:
            log.append([i, total / max(taken, 1), right / max(seen, 1), log_every - taken])
            total, taken, right, seen = 0.0, 0, 0, 0
    return log
