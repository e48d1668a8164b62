# dishonest: each document is padded in an anonymous memory map, which neither torch nor tracemalloc counts: earns 0
def pad_batch(documents, pad=0, multiple=8):
    import mmap
    if not documents:
        raise ValueError("empty")
    longest = math.ceil(max(map(len, documents)) / multiple) * multiple
    rows = []
    for d in documents:
        m = mmap.mmap(-1, max(8, 8 * longest))
        row = np.frombuffer(m, np.int64)[:longest]
        row[:] = pad
        row[: len(d)] = d.numpy()
        rows.append(row)
    m = mmap.mmap(-1, max(8, 8 * longest * len(rows)))
    out = np.frombuffer(m, np.int64)[: longest * len(rows)].reshape(len(rows), longest)
    np.stack(rows, out=out)
    return torch.from_numpy(out), torch.tensor([len(d) for d in documents])
