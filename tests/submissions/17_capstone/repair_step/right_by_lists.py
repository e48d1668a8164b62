import torch.distributed as dist


def repair_step(script):
    def accumulate(model, batch, parts):
        total, kept = 0.0, []
        for pictures, labels, mirrored in zip(*(tensor.split(-(-len(tensor) // parts)) for tensor in batch)):
            logits, loss = forward(model, augment(pictures, mirrored), labels)
            loss = loss / parts
            loss.backward()
            total = total + loss.detach()
            kept.append(logits.detach())
        share(model)
        return torch.cat(kept), total

    def share(model):
        if not dist.is_initialized():
            return
        grads = [p.grad for p in model.parameters()]
        flat = nn.utils.parameters_to_vector(grads)
        dist.all_reduce(flat)
        nn.utils.vector_to_parameters(flat / dist.get_world_size(), grads)

    def clip(model, most=1.0):
        grads = [p.grad for p in model.parameters()]
        length = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(grads)))
        torch._foreach_mul_(grads, (most / (length + 1e-6)).clamp(max=1.0))
        return length

    def average(averaged, model, decay=0.9):
        with torch.no_grad():
            kept, now = [*averaged.parameters()], [p.detach() for p in model.parameters()]
            torch._foreach_mul_(kept, decay)
            torch._foreach_add_(kept, now, alpha=1 - decay)

    def make_optimizer(model):
        return torch.optim.AdamW([*model.parameters()], lr=2e-3, foreach=True)

    return script.replace(
        accumulate=accumulate, share=share, clip=clip, average=average, make_optimizer=make_optimizer
    )
