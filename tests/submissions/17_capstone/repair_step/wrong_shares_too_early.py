# the gradients are shared inside accumulate, before the last part has added its own: earns 0
def repair_step(script):
    def accumulate(model, batch, parts):
        kept, losses = [], []
        for i, (pictures, labels, mirrored) in enumerate(pieces(batch, parts)):
            if i == parts - 1:
                share(model)
            logits, loss = forward(model, augment(pictures, mirrored), labels)
            (loss / parts).backward()
            kept.append(logits.detach())
            losses.append(loss.detach())
        return torch.cat(kept), torch.stack(losses).mean()

    return script.replace(accumulate=accumulate)
