# asks after each step whether all have ended: earns 0

def generate(step, tokens, place, most, end, every):
    places = torch.full((1,), place, device=tokens.device)
    ended = torch.zeros_like(tokens, dtype=torch.bool)
    made = []
    for i in range(most):
        tokens = torch.where(ended, end, step(tokens, places).argmax(1, keepdim=True))
        ended = ended | (tokens == end)
        made.append(tokens)
        places = places + 1
        if bool(ended.all()):
            break
    return torch.cat(made, dim=1)
