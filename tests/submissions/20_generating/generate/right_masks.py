def generate(step, tokens, place, most, end, every):
    places = torch.zeros(1, dtype=torch.int64, device=tokens.device) + place
    out = torch.zeros(len(tokens), most, dtype=torch.int64, device=tokens.device)
    running = torch.ones_like(tokens, dtype=torch.bool)
    made = 0
    while made < most:
        best = step(tokens, places).max(dim=1, keepdim=True).indices
        tokens = best * running + end * ~running
        out[:, made : made + 1] = tokens
        made += 1
        places = places + 1
        running = running & (tokens != end)
        if made % every == 0 and made < most and not running.any().item():
            break
    return out[:, :made]
