# Longest first, into the fullest row that has room; rows are put together with cat.
def packed(documents, length):
    rows, room = [], []
    for i in sorted(range(len(documents)), key=lambda i: -len(documents[i])):
        n = len(documents[i])
        fits = [r for r in range(len(rows)) if room[r] >= n]
        if fits:
            r = min(fits, key=lambda r: room[r])
        else:
            r = len(rows)
            rows.append([])
            room.append(length)
        rows[r].append(i)
        room[r] -= n

    def table(make, fill):
        made = [torch.cat([*map(make, row), torch.full((left,), fill)]) for row, left in zip(rows, room)]
        return torch.stack(made) if made else torch.empty(0, length, dtype=torch.int64)

    last = torch.tensor([-100])
    return {
        "tokens": table(lambda i: documents[i], 0),
        "targets": table(lambda i: torch.cat([documents[i][1:], last]), -100),
        "positions": table(lambda i: torch.arange(len(documents[i])), 0),
        "document": table(lambda i: torch.full((len(documents[i]),), i), -1),
    }
