# gives the step all tokens so far, whose shape grows: earns 0

def generate(step, tokens, place, most, end, every):
    places = torch.full((1,), place, device=tokens.device)
    ended = torch.zeros_like(tokens, dtype=torch.bool)
    made = []
    for i in range(most):
        tokens = torch.where(ended, end, step(torch.cat([*made[-1:], tokens], 1) if made else tokens, places).argmax(1, keepdim=True))
        ended = ended | (tokens == end)
        made.append(tokens)
        places = places + 1
        if (i + 1) % every == 0 and i + 1 < most and bool(ended.all()):
            break
    return torch.cat(made, dim=1)
