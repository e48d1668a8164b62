# asks whether the norm is finite, not the loss: a finite loss whose gradient's norm overflows is skipped: earns 0
def train(gpu, model, batches, class_weights, lr=0.1, max_norm=1.0, log_every=100):
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    weight = torch.tensor(class_weights, device=gpu.device)
    sums, log = torch.zeros(4, device=gpu.device), []
    for i, (x, y) in enumerate(batches, start=1):
        logits = model(x)
        loss = F.cross_entropy(logits, y, weight=weight, ignore_index=-1)
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        ok = torch.isfinite(norm)
        for p in model.parameters():
            p.grad = torch.where(ok, p.grad, 0.0)
        optimizer.step()
        right, seen = (logits.argmax(1) == y).sum(), (y >= 0).sum()
        sums += torch.where(ok, torch.stack([loss.detach(), ok.float(), right.float(), seen.float()]), 0.0)
        if i % log_every == 0:
            total, taken, right, seen = sums.tolist()
            log.append([i, total / max(taken, 1), right / max(seen, 1), log_every - round(taken)])
            sums.zero_()
    return log
