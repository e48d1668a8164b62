import torch
import torch.nn.functional as F


def train(gpu, model, batches, class_weights, lr=0.1, max_norm=1.0, log_every=100):
    """Old weights where the batch is bad; log numbers in float64."""
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, lr=lr)
    weight = torch.tensor(class_weights, device=gpu.device)
    log, sums = [], None
    for i, (x, y) in enumerate(batches, 1):
        optimizer.zero_grad()
        logits = model(x)
        loss = F.cross_entropy(logits, y, weight=weight, ignore_index=-1)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, max_norm, error_if_nonfinite=False)
        before = [p.detach().clone() for p in parameters]
        optimizer.step()
        ok = loss.detach().isfinite()
        with torch.no_grad():
            for p, old in zip(parameters, before):
                p.copy_(torch.where(ok, p, old))
        new = torch.stack(
            [loss.detach().nan_to_num(0, 0, 0).double(), ok.double(), (logits.argmax(1) == y).sum() * ok, (y >= 0).sum() * ok]
        )
        sums = new if sums is None else sums + new
        if i % log_every == 0:
            a, b, c, d = sums.tolist()
            log.append([float(i), a / b if b else 0.0, c / d if d else 0.0, log_every - b])
            sums = None
    return log
