# keeps one buffer many times, so all columns are the last one: earns 0

def generate(step, tokens, place, most, end, every):
    places = torch.full((1,), place, device=tokens.device)
    ended = torch.zeros_like(tokens, dtype=torch.bool)
    made = []
    now = tokens.clone()
    for i in range(most):
        tokens = now.copy_(torch.where(ended, end, step(now, places).argmax(1, keepdim=True)))
        ended = ended | (tokens == end)
        made.append(tokens)
        places = places + 1
        if (i + 1) % every == 0 and i + 1 < most and bool(ended.all()):
            break
    return torch.cat(made, dim=1)
