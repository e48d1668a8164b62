# reads the right bytes in a request a picture: earns 1
def repair_data(script):
    def fetch(files, rows):
        pictures = torch.cat([torch.from_numpy(files.read([row])) for row in rows])
        return pictures, torch.from_numpy(files.labels[rows])

    return script.replace(fetch=fetch)
