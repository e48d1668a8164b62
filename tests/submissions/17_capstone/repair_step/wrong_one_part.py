# the first part stands for the batch: earns 0
def repair_step(script):
    def accumulate(model, batch, parts):
        pictures, labels, mirrored = next(iter(pieces(batch, parts)))
        logits, loss = forward(model, augment(pictures, mirrored), labels)
        loss.backward()
        share(model)
        return logits.detach().repeat(parts, 1), loss.detach()

    def clip(model, most=1.0):
        return nn.utils.clip_grad_norm_(model.parameters(), most)

    return script.replace(accumulate=accumulate, clip=clip)
