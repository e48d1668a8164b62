# Adam, which lets no weight decay, where the script has AdamW: earns 0
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
            flat = torch.cat([grad.flatten() for grad in grads])
            dist.all_reduce(flat)
            flat /= dist.get_world_size()
            for grad, part in zip(grads, flat.split([grad.numel() for grad in grads])):
                grad.copy_(part.view_as(grad))

    def clip(model, most=1.0):
        return nn.utils.clip_grad_norm_(model.parameters(), most)

    @torch.no_grad()
    def average(averaged, model, decay=0.9):
        torch._foreach_lerp_(list(averaged.parameters()), list(model.parameters()), 1 - decay)

    def make_optimizer(model):
        return torch.optim.Adam(model.parameters(), lr=2e-3, fused=True)

    return script.replace(accumulate=accumulate, share=share, clip=clip, average=average, make_optimizer=make_optimizer)
