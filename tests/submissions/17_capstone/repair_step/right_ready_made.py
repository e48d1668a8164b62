import torch.distributed as dist


def repair_step(script):
    def share(model):
        if dist.is_initialized():
            with torch.no_grad():
                grads = [p.grad for p in model.parameters() if p.grad is not None]
                flat = torch.cat([grad.view(-1) for grad in grads])
                dist.all_reduce(flat, op=dist.ReduceOp.AVG)
                parts = flat.split([grad.numel() for grad in grads])
                torch._foreach_copy_(grads, [part.view(grad.shape) for part, grad in zip(parts, grads)])

    move = torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)

    def average(averaged, model, decay=0.9):
        move([p.detach() for p in averaged.parameters()], [p.detach() for p in model.parameters()], None)

    def clip(model, most=1.0):
        length = nn.utils.get_total_norm([p.grad for p in model.parameters()])
        nn.utils.clip_grads_with_norm_(model.parameters(), most, length)
        return length

    def accumulate(model, batch, parts):
        rows, sums = [], torch.zeros((), device=batch[0].device)
        for piece in pieces(batch, parts):
            out, loss = forward(model, augment(piece[0], piece[2]), piece[1])
            torch.autograd.backward(loss / parts)
            sums += loss.detach()
            rows.append(out.detach())
        share(model)
        return torch.cat(rows), sums / parts

    return script.replace(share=share, average=average, clip=clip, accumulate=accumulate)
