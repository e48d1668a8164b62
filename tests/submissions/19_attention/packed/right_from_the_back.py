# First fit from the last document on; padding stands in front.
def packed(documents, length):
    free, where = [], {}
    for i, text in reversed(list(enumerate(documents))):
        for row, left in enumerate(free):
            if len(text) <= left:
                break
        else:
            row = len(free)
            free.append(length)
        free[row] -= len(text)
        where[i] = row, free[row]
    tokens = torch.zeros(len(free), length, dtype=torch.long)
    positions, targets, document = tokens.clone(), tokens - 100, tokens - 1
    for i, (row, at) in where.items():
        n = len(documents[i])
        tokens[row, at : at + n] = documents[i]
        positions[row, at : at + n] = torch.arange(n)
        document[row, at : at + n] = i
        if n > 1:
            targets[row, at : at + n - 1] = documents[i][1:]
    return {"tokens": tokens, "positions": positions, "targets": targets, "document": document}
