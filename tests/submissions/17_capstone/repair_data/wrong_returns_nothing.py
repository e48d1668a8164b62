# forgets to return the script: earns 0
def repair_data(script):
    def fetch(files, rows):
        return torch.from_numpy(files.read(rows)), torch.from_numpy(files.labels[rows])

    script.replace(fetch=fetch)
