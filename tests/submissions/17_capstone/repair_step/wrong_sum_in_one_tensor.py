# one all-reduce, and nobody divides by the number of ranks: earns 0
def repair_step(script):
    def accumulate(model, batch, parts):
        kept, losses = [], []
        for pictures, labels, mirrored in pieces(batch, parts):
            logits, loss = forward(model, augment(pictures, mirrored), labels)
            (loss / parts).backward()
            kept.append(logits.detach())
            losses.append(loss.detach())
        share(model)
        return torch.cat(kept), torch.stack(losses).mean()

    def share(model):
        if dist.is_initialized():
            grads = [p.grad for p in model.parameters() if p.grad is not None]
            flat = nn.utils.parameters_to_vector(grads)
            dist.all_reduce(flat, op=dist.ReduceOp.SUM)
            nn.utils.vector_to_parameters(flat, grads)

    def clip(model, most=1.0):
        return nn.utils.clip_grad_norm_(model.parameters(), most)

    @torch.no_grad()
    def average(averaged, model, decay=0.9):
        torch._foreach_lerp_(list(averaged.parameters()), list(model.parameters()), 1 - decay)

    return script.replace(accumulate=accumulate, share=share, clip=clip, average=average)
