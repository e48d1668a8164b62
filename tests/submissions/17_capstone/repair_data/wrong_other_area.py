# replaces a part of another exercise as well: earns 0
def repair_data(script):
    def fetch(files, rows):
        return torch.from_numpy(files.read(rows)), torch.from_numpy(files.labels[rows])

    return script.replace(fetch=fetch, through=lambda block, x: block(x))
