# half as many bytes as before, and four times what there has to be: earns 1
def repair_data(script):
    def fetch(files, rows):
        return torch.from_numpy(files.read(rows)).float(), torch.from_numpy(files.labels[rows])

    return script.replace(fetch=fetch)
