# part by part, and each part's graph stays: earns 1
def repair_step(script):
    def accumulate(model, batch, parts):
        kept, losses = [], []
        for pictures, labels, mirrored in pieces(batch, parts):
            logits, loss = forward(model, augment(pictures, mirrored), labels)
            (loss / parts).backward(retain_graph=True)
            kept.append(logits)
            losses.append(loss)
        share(model)
        return torch.cat(kept).detach(), torch.stack(losses).mean().detach()

    def clip(model, most=1.0):
        return nn.utils.clip_grad_norm_(model.parameters(), most)

    return script.replace(accumulate=accumulate, clip=clip)
