# keeps each step's logits and reads them at the end, when the graph has written over them: earns 0
def generate(step, tokens, place, most, end, every):
    at = torch.full((1,), place, device=tokens.device)
    ended, kept = torch.zeros_like(tokens, dtype=torch.bool), []
    for i in range(most):
        logits = step(tokens, at)
        tokens = torch.where(ended, end, logits.argmax(1, keepdim=True))
        kept.append((logits, ended))
        ended = ended | (tokens == end)
        at = at + 1
        if (i + 1) % every == 0 and i + 1 < most and bool(ended.all()):
            break
    return torch.cat([torch.where(was, end, logits.argmax(1, keepdim=True)) for logits, was in kept], dim=1)
