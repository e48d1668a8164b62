# right for pictures of sixteen pixels: earns 0
def repair_data(script):
    def fetch(files, rows):
        pictures = torch.from_numpy(files.read(rows)).view(len(rows), 3, 16, 16)
        return pictures, torch.from_numpy(files.labels[rows])

    return script.replace(fetch=fetch)
