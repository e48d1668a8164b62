# positions go on through the row: earns 0
def packed(documents, length):
    used, places = [], []
    for text in documents:
        n = len(text)
        row = next((r for r, there in enumerate(used) if there + n <= length), len(used))
        if row == len(used):
            used.append(0)
        places.append((row, used[row]))
        used[row] += n
    fills = {"tokens": 0, "targets": -100, "positions": 0, "document": -1}
    rows = {name: torch.full((len(used), length), fill) for name, fill in fills.items()}
    for number, (text, (row, start)) in enumerate(zip(documents, places)):
        end = start + len(text)
        rows["tokens"][row, start:end] = text
        rows["targets"][row, start : end - 1] = text[1:]
        rows["positions"][row, start:end] = torch.arange(start, end)
        rows["document"][row, start:end] = number
    return rows
