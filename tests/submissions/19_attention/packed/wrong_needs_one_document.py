# a table is stacked of rows, of which there must be one: earns 1
def packed(documents, length):
    used, rows = [], []
    for i, text in enumerate(documents):
        n = len(text)
        row = next((r for r, there in enumerate(used) if there + n <= length), len(used))
        if row == len(used):
            used.append(0)
            rows.append([torch.full((length,), fill) for fill in (0, -100, 0, -1)])
        tokens, targets, positions, document = rows[row]
        at = slice(used[row], used[row] + n)
        tokens[at], positions[at], document[at] = text, torch.arange(n), i
        targets[used[row] : used[row] + n - 1] = text[1:]
        used[row] += n
    names = "tokens", "targets", "positions", "document"
    return {name: torch.stack([row[k] for row in rows]) for k, name in enumerate(names)}
